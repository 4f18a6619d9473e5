//! Programs of the kernel's system call filter.
//!
//! Owns the few instructions a filter is built from, and rules on the number and the arguments of a call. Refuses knowing
//! which calls are dangerous; that list is in [`super::seccomp`].
//!
//! A program reads the call's number once. Each rule is a comparison with one number and a body that always returns, so
//! the order of rules does not matter and a jump never leaves its rule. The kernel precomputes the answer for numbers
//! without conditions on arguments, so a long list costs nothing per call.

use libc::sock_filter;

use crate::linux::layers::Layers;

const LOAD_WORD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_GREATER_OR_EQUAL: u16 = 0x35;
const JUMP_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;
const AND: u16 = 0x54;

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCHITECTURE: u32 = 4;
const OFFSET_ARGUMENTS: u32 = 16;

/// Calls from here on belong to the x32 interface of x86-64, which reaches the same code by other numbers.
const X32_BIT: u32 = 0x4000_0000;

/// Number of this build's own calling convention; filters exist for these two.
#[cfg(target_arch = "x86_64")]
pub(super) const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub(super) const ARCHITECTURE: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the system call filter knows the numbers of x86-64 and aarch64 only");

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Allow,
    Errno(u16),
    Kill,
    /// An observer is asked, who lets it go on.
    Ask,
}

impl Action {
    const fn code(self) -> u32 {
        match self {
            Self::Allow => libc::SECCOMP_RET_ALLOW,
            Self::Errno(errno) => libc::SECCOMP_RET_ERRNO | errno as u32,
            Self::Kill => libc::SECCOMP_RET_KILL_PROCESS,
            Self::Ask => libc::SECCOMP_RET_USER_NOTIF,
        }
    }
}

/// When a rule lets a call through. Arguments are compared by their lower 32 bits, which is all the kernel reads of the
/// ones named here: a comparison of 64 bits could be dodged with rubbish in the upper half.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unless {
    /// Never.
    Never,
    /// None of these bits is set in the argument.
    NoBit { argument: u32, bits: u32 },
    /// In one of two arguments none of the bits given for it is set.
    NotBoth { first: (u32, u32), second: (u32, u32) },
    /// The argument is none of these values.
    NoneOf { argument: u32, values: &'static [u32] },
    /// The first argument has another value than the one given for it, or the second is none of these values.
    NotThese { first: (u32, u32), argument: u32, values: &'static [u32] },
    /// All pairs of argument and value of one of these lists are equal.
    AnyOf(&'static [&'static [(u32, u32)]]),
    /// As `AnyOf`, of the bits that the mask between argument and value leaves.
    AnyMasked(&'static [&'static [(u32, u32, u32)]]),
    /// The argument, a pointer of 64 bits, is null.
    Null { argument: u32 },
}

/// One system call that is not allowed as it comes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    pub(super) number: i64,
    pub(super) unless: Unless,
    pub(super) errno: i32,
}

/// A finished program.
#[derive(Debug, Clone)]
pub(in crate::linux) struct Program(Vec<sock_filter>);

impl Program {
    /// Calls of another architecture kill, x32 calls and numbers above `last_known` do not exist, `rules` are applied,
    /// everything else is allowed.
    pub(super) fn new(rules: &[Rule], last_known: u32, layers: Layers) -> Self {
        let mut program = Vec::new();
        if layers.has(Layers::FILTER_ARCHITECTURE) {
            program.push(statement(LOAD_WORD, OFFSET_ARCHITECTURE));
            program.extend([jump(JUMP_EQUAL, ARCHITECTURE, 1, 0), give(Action::Kill)]);
        }
        program.push(statement(LOAD_WORD, OFFSET_NUMBER));
        if layers.has(Layers::FILTER_X32) {
            program.extend([jump(JUMP_GREATER_OR_EQUAL, X32_BIT, 0, 1), give(NO_SUCH_CALL)]);
        }
        if layers.has(Layers::FILTER_NEWER) {
            program.extend([jump(JUMP_GREATER, last_known, 0, 1), give(NO_SUCH_CALL)]);
        }
        for rule in rules {
            let body = body(rule);
            // A number of this build's C library fits; a body is a handful of instructions.
            let number = u32::try_from(rule.number).unwrap_or(u32::MAX);
            program.push(jump(JUMP_EQUAL, number, 0, u8::try_from(body.len()).unwrap_or(u8::MAX)));
            program.extend(body);
        }
        program.push(give(Action::Allow));
        Self(program)
    }

    /// An observer is asked about these calls; everything else is allowed. Calls by other conventions are for the filter
    /// of the sandbox, whose stricter answer wins.
    pub(super) fn asking(numbers: impl Iterator<Item = i64>) -> Self {
        let mut program = vec![
            statement(LOAD_WORD, OFFSET_ARCHITECTURE),
            jump(JUMP_EQUAL, ARCHITECTURE, 1, 0),
            give(Action::Allow),
            statement(LOAD_WORD, OFFSET_NUMBER),
        ];
        for number in numbers {
            program.push(jump(JUMP_EQUAL, u32::try_from(number).unwrap_or(u32::MAX), 0, 1));
            program.push(give(Action::Ask));
        }
        program.push(give(Action::Allow));
        Self(program)
    }

    pub(super) fn instructions(&self) -> &[sock_filter] {
        &self.0
    }
}

const NO_SUCH_CALL: Action = Action::Errno(libc::ENOSYS as u16);

fn body(rule: &Rule) -> Vec<sock_filter> {
    let deny = give(Action::Errno(u16::try_from(rule.errno).unwrap_or(libc::EPERM as u16)));
    let allow = give(Action::Allow);
    match rule.unless {
        Unless::Never => vec![deny],
        Unless::NoBit { argument, bits } => {
            vec![statement(LOAD_WORD, low(argument)), jump(JUMP_ANY_BIT, bits, 1, 0), allow, deny]
        }
        Unless::NotBoth { first, second } => vec![
            statement(LOAD_WORD, low(first.0)),
            jump(JUMP_ANY_BIT, first.1, 0, 2),
            statement(LOAD_WORD, low(second.0)),
            jump(JUMP_ANY_BIT, second.1, 1, 0),
            allow,
            deny,
        ],
        Unless::NoneOf { argument, values } => {
            let mut body = vec![statement(LOAD_WORD, low(argument))];
            for value in values {
                body.extend([jump(JUMP_EQUAL, *value, 0, 1), deny]);
            }
            body.push(allow);
            body
        }
        Unless::NotThese { first, argument, values } => {
            let mut rest = vec![statement(LOAD_WORD, low(argument))];
            for value in values {
                rest.extend([jump(JUMP_EQUAL, *value, 0, 1), deny]);
            }
            let over = u8::try_from(rest.len()).unwrap_or(u8::MAX);
            let mut body = vec![statement(LOAD_WORD, low(first.0)), jump(JUMP_EQUAL, first.1, 0, over)];
            body.extend(rest);
            body.push(allow);
            body
        }
        Unless::AnyOf(lists) => {
            let mut body = Vec::new();
            for list in lists {
                for (position, (argument, value)) in list.iter().enumerate() {
                    // Over the rest of this list: two instructions each, and its `allow`.
                    let rest = 2 * (list.len() - position - 1) + 1;
                    body.push(statement(LOAD_WORD, low(*argument)));
                    body.push(jump(JUMP_EQUAL, *value, 0, u8::try_from(rest).unwrap_or(u8::MAX)));
                }
                body.push(allow);
            }
            body.push(deny);
            body
        }
        Unless::AnyMasked(lists) => {
            let mut body = Vec::new();
            for list in lists {
                for (position, (argument, mask, value)) in list.iter().enumerate() {
                    // Over the rest of this list: three instructions each, and its `allow`.
                    let rest = 3 * (list.len() - position - 1) + 1;
                    body.push(statement(LOAD_WORD, low(*argument)));
                    body.push(statement(AND, *mask));
                    body.push(jump(JUMP_EQUAL, *value, 0, u8::try_from(rest).unwrap_or(u8::MAX)));
                }
                body.push(allow);
            }
            body.push(deny);
            body
        }
        Unless::Null { argument } => vec![
            statement(LOAD_WORD, low(argument)),
            jump(JUMP_EQUAL, 0, 0, 2),
            statement(LOAD_WORD, low(argument) + 4),
            jump(JUMP_EQUAL, 0, 1, 0),
            deny,
            allow,
        ],
    }
}

/// Place of the lower half of an argument; both supported architectures are little-endian.
const fn low(argument: u32) -> u32 {
    OFFSET_ARGUMENTS + 8 * argument
}

const fn statement(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

const fn give(action: Action) -> sock_filter {
    statement(RETURN, action.code())
}

#[cfg(test)]
pub(super) mod simulation {
    //! The kernel's interpreter for the instructions used here, so that every rule can be tried without a process.

    use super::*;

    /// A call as a filter sees it.
    #[derive(Debug, Clone, Copy)]
    pub(in crate::linux::confine) struct Call {
        pub(in crate::linux::confine) architecture: u32,
        pub(in crate::linux::confine) number: u32,
        pub(in crate::linux::confine) arguments: [u64; 6],
    }

    impl Call {
        pub(in crate::linux::confine) fn new(number: i64, arguments: &[u64]) -> Self {
            let mut all = [0; 6];
            all[..arguments.len()].copy_from_slice(arguments);
            Self { architecture: ARCHITECTURE, number: u32::try_from(number).unwrap(), arguments: all }
        }

        fn word(self, offset: u32) -> u32 {
            match offset {
                OFFSET_NUMBER => self.number,
                OFFSET_ARCHITECTURE => self.architecture,
                _ => {
                    let position = offset - OFFSET_ARGUMENTS;
                    let value = self.arguments[position as usize / 8];
                    if position.is_multiple_of(8) { value as u32 } else { (value >> 32) as u32 }
                }
            }
        }
    }

    pub(in crate::linux::confine) fn run(program: &Program, call: Call) -> Action {
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let instruction = program.0[at];
            at += 1;
            let holds = match instruction.code {
                LOAD_WORD => {
                    accumulator = call.word(instruction.k);
                    continue;
                }
                AND => {
                    accumulator &= instruction.k;
                    continue;
                }
                RETURN => return action(instruction.k),
                JUMP_EQUAL => accumulator == instruction.k,
                JUMP_GREATER => accumulator > instruction.k,
                JUMP_GREATER_OR_EQUAL => accumulator >= instruction.k,
                JUMP_ANY_BIT => accumulator & instruction.k != 0,
                other => panic!("unknown instruction {other:#x}"),
            };
            at += usize::from(if holds { instruction.jt } else { instruction.jf });
        }
    }

    fn action(code: u32) -> Action {
        match code & 0xffff_0000 {
            libc::SECCOMP_RET_ALLOW => Action::Allow,
            libc::SECCOMP_RET_ERRNO => Action::Errno(code as u16),
            libc::SECCOMP_RET_KILL_PROCESS => Action::Kill,
            libc::SECCOMP_RET_USER_NOTIF => Action::Ask,
            other => panic!("unknown action {other:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        simulation::{Call, run},
        *,
    };

    fn answer(unless: Unless, arguments: &[u64]) -> Action {
        let rules = [
            Rule { number: 7, unless: Unless::Never, errno: libc::EACCES },
            Rule { number: 9, unless, errno: libc::EPERM },
            Rule { number: 10, unless: Unless::Never, errno: libc::ENOSYS },
        ];
        run(&Program::new(&rules, 460, Layers::ALL), Call::new(9, arguments))
    }

    const DENIED: Action = Action::Errno(libc::EPERM as u16);

    /// A jump that is off by one would let a dangerous call through or break a harmless one.
    #[test]
    fn rules_compare_arguments_as_the_kernel_reads_them() {
        const UPPER: u64 = 0xdead << 32;
        assert_eq!(answer(Unless::Never, &[]), DENIED);
        let bits = Unless::NoBit { argument: 1, bits: 0x30 };
        assert_eq!(answer(bits, &[0, 0x10]), DENIED);
        assert_eq!(answer(bits, &[0x10, UPPER | 0x0f]), Action::Allow);
        let values = Unless::NoneOf { argument: 1, values: &[5, 6] };
        assert_eq!(answer(values, &[0, 5]), DENIED);
        assert_eq!(answer(values, &[0, UPPER | 6]), DENIED, "rubbish in the upper half must not hide the value");
        assert_eq!(answer(values, &[5, 7]), Action::Allow);
        let these = Unless::NotThese { first: (0, 1), argument: 2, values: &[5, 6] };
        assert_eq!(answer(these, &[UPPER | 1, 0, UPPER | 6]), DENIED);
        assert_eq!(answer(these, &[1, 0, 5]), DENIED);
        assert_eq!(answer(these, &[1, 0, 7]), Action::Allow);
        assert_eq!(answer(these, &[2, 0, 5]), Action::Allow);
        let lists = Unless::AnyOf(&[&[(0, 1)], &[(0, 2), (2, 8)]]);
        assert_eq!(answer(lists, &[1]), Action::Allow);
        assert_eq!(answer(lists, &[2, 0, 8]), Action::Allow);
        assert_eq!(answer(lists, &[2, 0, 9]), DENIED);
        assert_eq!(answer(lists, &[3, 0, 8]), DENIED);
        let masked = Unless::AnyMasked(&[&[(0, !0, 1)], &[(0, 0xf, 2), (2, !0, 8)]]);
        assert_eq!(answer(masked, &[1]), Action::Allow);
        assert_eq!(answer(masked, &[UPPER | 0x82, 0, 8]), Action::Allow);
        assert_eq!(answer(masked, &[0x82, 0, 9]), DENIED);
        assert_eq!(answer(masked, &[0x81, 0, 8]), DENIED);
        let null = Unless::Null { argument: 1 };
        assert_eq!(answer(null, &[1, 0]), Action::Allow);
        assert_eq!(answer(null, &[0, 1]), DENIED);
        assert_eq!(answer(null, &[0, UPPER]), DENIED);
    }

    /// A filter that asks about its own message to the observer would wait for itself.
    #[test]
    fn only_listed_calls_are_asked_about() {
        let program = Program::asking([7, 9].into_iter());
        assert_eq!(run(&program, Call::new(9, &[])), Action::Ask);
        assert_eq!(run(&program, Call::new(8, &[])), Action::Allow);
        assert_eq!(run(&program, Call { architecture: 0x4000_0003, ..Call::new(9, &[]) }), Action::Allow);
        assert!(!crate::linux::observe::numbers().any(|number| number == libc::SYS_sendmsg));
    }

    /// The same kernel code is reached by other numbers; a filter that looks at one list only is no filter.
    #[test]
    fn other_calling_conventions_do_not_get_around_the_rules() {
        let program = Program::new(&[], 460, Layers::ALL);
        let call = Call::new(9, &[]);
        assert_eq!(run(&program, call), Action::Allow);
        assert_eq!(run(&program, Call { architecture: 0x4000_0003, ..call }), Action::Kill);
        assert_eq!(run(&program, Call { number: X32_BIT | 9, ..call }), NO_SUCH_CALL);
        assert_eq!(run(&program, Call { number: 461, ..call }), NO_SUCH_CALL);
        assert_eq!(run(&program, Call { number: u32::MAX, ..call }), NO_SUCH_CALL);
        assert_eq!(run(&program, Call { number: 460, ..call }), Action::Allow);
    }

    /// Kernels of most machines know neither these numbers nor the others, so only here can it be seen who stops them.
    #[test]
    fn each_comparison_stops_what_it_is_there_for() {
        let answers = |left_out: &str| {
            let program = Program::new(&[], 460, Layers::without(left_out).unwrap());
            let call = Call::new(9, &[]);
            [
                run(&program, Call { architecture: 0x4000_0003, ..call }),
                run(&program, Call { number: X32_BIT | 9, ..call }),
                run(&program, Call { number: 461, ..call }),
                run(&program, call),
            ]
        };
        use Action::{Allow, Kill};
        assert_eq!(answers("filter-architecture"), [Allow, NO_SUCH_CALL, NO_SUCH_CALL, Allow]);
        assert_eq!(answers("filter-newer"), [Kill, NO_SUCH_CALL, Allow, Allow]);
        // Numbers of x32 are also larger than any known one, and get through without both comparisons.
        assert_eq!(answers("filter-x32"), [Kill, NO_SUCH_CALL, NO_SUCH_CALL, Allow]);
        assert_eq!(answers("filter-x32+filter-newer"), [Kill, Allow, Allow, Allow]);
    }
}
