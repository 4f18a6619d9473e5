//! May this call run? Owns the rules, their order and the sentences that explain the outcome.
//! Refuses to ask anybody or to remember answers: it judges what it is given, and the strictest
//! rule wins.
//!
//! | rule | when it speaks | effect |
//! |---|---|---|
//! | `plugin-enabled` | always | deny while the plugin is disabled |
//! | `plugin-approved` | always | deny while something approved has changed |
//! | `tool-on` | always | deny when a person switched the tool off |
//! | `tool-approved` | always | deny while the tool's definition has changed |
//! | `permission` | the tool names no permission | allow: the approval of the plugin covers it |
//! | `permission-known` | the tool names one | deny when the deployment does not know it |
//! | `permission-declared` | the tool names one | deny when the manifest does not ask for it |
//! | `permission-granted` | the tool names one | deny when nobody granted it |
//! | `permission-effect` | the permission is known | its effect in the catalogue |
//! | `answer` | a person has answered before | allow settles an ask, deny is final |

use crate::id::{PermissionName, ToolId};
use crate::permission::{Catalogue, Effect, GrantSet};
use crate::visible::visible;

/// What a person answered to a question about this tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StandingAnswer {
    /// Yes, for this call.
    AllowOnce,
    /// Yes, until the session ends.
    AllowSession,
    /// No.
    Deny,
}

/// Everything a decision depends on. The plugin is the one in [`ToolId::plugin`].
#[derive(Clone, Copy, Debug)]
pub struct DecisionInput<'a> {
    /// The tool that is called.
    pub tool: &'a ToolId,
    /// The permission the tool says it needs.
    pub tool_permission: Option<&'a PermissionName>,
    /// The permissions this deployment knows.
    pub catalogue: &'a Catalogue,
    /// The permissions the plugin's manifest asks for.
    pub manifest_permissions: &'a [PermissionName],
    /// The permissions a person granted to the plugin.
    pub grants: &'a GrantSet,
    /// Whether the plugin is enabled.
    pub plugin_enabled: bool,
    /// Why the plugin is held for review, if it is: a phrase without a stop.
    pub plugin_held: Option<&'a str>,
    /// Whether a person left the tool on.
    pub tool_on: bool,
    /// Why the tool is held for review, if it is: a phrase without a stop.
    pub tool_held: Option<&'a str>,
    /// What a person answered about this tool before.
    pub answer: Option<StandingAnswer>,
}

/// What one rule said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasonStep {
    /// The rule's name.
    pub rule: &'static str,
    /// What it wants.
    pub effect: Effect,
    /// Why, as a sentence for people without a stop.
    pub text: String,
}

/// The outcome with its explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What happens to the call.
    pub verdict: Effect,
    /// Every rule that spoke, in order.
    pub steps: Vec<ReasonStep>,
}

impl Decision {
    /// The first step that demanded the verdict: the sentence to show when only one fits.
    #[must_use]
    pub fn reason(&self) -> Option<&ReasonStep> {
        self.steps.iter().find(|step| step.effect == self.verdict)
    }
}

/// Judges one call.
#[must_use]
pub fn decide(input: &DecisionInput<'_>) -> Decision {
    let mut steps = standing_steps(input);
    permission_steps(input, &mut steps);
    let strictest = steps.iter().map(|step| step.effect).max().unwrap_or(Effect::Deny);
    let verdict = match input.answer {
        None => strictest,
        Some(answer) => {
            let (effect, text) = match answer {
                StandingAnswer::AllowOnce => (Effect::Allow, "a person allowed this call"),
                StandingAnswer::AllowSession => (Effect::Allow, "a person allowed this tool for the session"),
                StandingAnswer::Deny => (Effect::Deny, "a person denied this tool"),
            };
            steps.push(ReasonStep { rule: "answer", effect, text: text.to_owned() });
            // An answer settles a question; it never overrules a rule that says no.
            match strictest {
                Effect::Ask => effect,
                Effect::Allow | Effect::Deny => strictest.max(effect),
            }
        }
    };
    Decision { verdict, steps }
}

/// The rules about plugin and tool as such.
fn standing_steps(input: &DecisionInput<'_>) -> Vec<ReasonStep> {
    let plugin = input.tool.plugin();
    let tool = input.tool;
    let mut steps = Vec::new();
    let mut step = |rule: &'static str, refused: Option<String>, accepted: String| {
        let effect = if refused.is_some() { Effect::Deny } else { Effect::Allow };
        steps.push(ReasonStep { rule, effect, text: refused.unwrap_or(accepted) });
    };
    step(
        "plugin-enabled",
        (!input.plugin_enabled).then(|| format!("plugin `{plugin}` is disabled")),
        format!("plugin `{plugin}` is enabled"),
    );
    step(
        "plugin-approved",
        input.plugin_held.map(|why| format!("plugin `{plugin}` is held for review: {}", visible(why))),
        format!("plugin `{plugin}` runs as it was approved"),
    );
    step(
        "tool-on",
        (!input.tool_on).then(|| format!("tool `{tool}` is switched off")),
        format!("tool `{tool}` is switched on"),
    );
    step(
        "tool-approved",
        input.tool_held.map(|why| format!("tool `{tool}` is held for review: {}", visible(why))),
        format!("tool `{tool}` is defined as it was approved"),
    );
    steps
}

/// The rules about the permission the tool names.
fn permission_steps(input: &DecisionInput<'_>, steps: &mut Vec<ReasonStep>) {
    let (plugin, tool) = (input.tool.plugin(), input.tool);
    let mut step = |rule: &'static str, effect: Effect, text: String| {
        steps.push(ReasonStep { rule, effect, text });
    };
    let Some(permission) = input.tool_permission else {
        let text = format!("tool `{tool}` names no permission, the approval of `{plugin}` covers it");
        step("permission", Effect::Allow, text);
        return;
    };
    let known = input.catalogue.knows(permission);
    if known {
        let text = format!("permission `{permission}` is known here");
        step("permission-known", Effect::Allow, text);
    } else {
        let text = format!("permission `{permission}` is not known here");
        step("permission-known", Effect::Deny, text);
    }
    if input.manifest_permissions.contains(permission) {
        let text = format!("the manifest of `{plugin}` asks for `{permission}`");
        step("permission-declared", Effect::Allow, text);
    } else {
        let text = format!("the manifest of `{plugin}` does not ask for `{permission}`");
        step("permission-declared", Effect::Deny, text);
    }
    if input.grants.contains(permission) {
        let text = format!("permission `{permission}` was granted to `{plugin}`");
        step("permission-granted", Effect::Allow, text);
    } else {
        let text = format!("permission `{permission}` was not granted to `{plugin}`");
        step("permission-granted", Effect::Deny, text);
    }
    if known {
        let effect = input.catalogue.effect(permission);
        let text = match effect {
            Effect::Allow => format!("permission `{permission}` needs no question here"),
            Effect::Ask => format!("permission `{permission}` needs the yes of a person"),
            Effect::Deny => format!("permission `{permission}` is denied here"),
        };
        step("permission-effect", effect, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> PermissionName {
        text.parse().unwrap()
    }

    fn tool() -> ToolId {
        ToolId::parse("demo.search", &"demo".parse().unwrap()).unwrap()
    }

    /// The verdict the design asks for, written down independently of the rules' code.
    fn expected(
        standing: [bool; 4],
        permission: Option<(Option<Effect>, bool, bool)>,
        answer: Option<StandingAnswer>,
    ) -> Effect {
        if standing.contains(&false) || answer == Some(StandingAnswer::Deny) {
            return Effect::Deny;
        }
        match permission {
            None | Some((Some(Effect::Allow), true, true)) => Effect::Allow,
            Some((Some(Effect::Ask), true, true)) if answer.is_some() => Effect::Allow,
            Some((Some(Effect::Ask), true, true)) => Effect::Ask,
            Some(_) => Effect::Deny,
        }
    }

    // Requirements 9-10, 62, 63: every combination of what a decision depends on. One wrong cell
    // is a call that runs without consent, or one that never runs.
    #[test]
    fn the_whole_decision_table() {
        let permission = name("notes.write");
        let declared = [permission.clone()];
        let granted: GrantSet = declared.iter().cloned().collect();
        let (tool, ungranted) = (tool(), GrantSet::default());
        let mut permissions = vec![None];
        for effect in [None, Some(Effect::Allow), Some(Effect::Ask), Some(Effect::Deny)] {
            for (declares, grants) in [(false, false), (false, true), (true, false), (true, true)] {
                permissions.push(Some((effect, declares, grants)));
            }
        }
        let answers =
            [None, Some(StandingAnswer::AllowOnce), Some(StandingAnswer::AllowSession), Some(StandingAnswer::Deny)];
        let mut cells = 0;
        for bits in 0..16_u8 {
            let standing = [0, 1, 2, 3].map(|bit| bits & (1 << bit) == 0);
            for asked in &permissions {
                let (effect, declares, grants) = asked.unwrap_or((None, false, false));
                let catalogue = match effect {
                    Some(effect) => Catalogue::empty().with(permission.clone(), effect),
                    None => Catalogue::empty(),
                };
                for answer in answers {
                    let decision = decide(&DecisionInput {
                        tool: &tool,
                        tool_permission: asked.map(|_| &permission),
                        catalogue: &catalogue,
                        manifest_permissions: if declares { &declared } else { &[] },
                        grants: if grants { &granted } else { &ungranted },
                        plugin_enabled: standing[0],
                        plugin_held: (!standing[1]).then_some("arguments changed"),
                        tool_on: standing[2],
                        tool_held: (!standing[3]).then_some("description changed"),
                        answer,
                    });
                    let wanted = expected(standing, *asked, answer);
                    assert_eq!(decision.verdict, wanted, "{standing:?} {asked:?} {answer:?}");
                    assert!(decision.reason().is_some(), "{decision:?}");
                    cells += 1;
                }
            }
        }
        assert_eq!(cells, 16 * 17 * 4);
    }

    #[test]
    fn a_denial_says_which_rule_and_why() {
        let tool = tool();
        let permission = name("notes.write");
        let decision = decide(&DecisionInput {
            tool: &tool,
            tool_permission: Some(&permission),
            catalogue: &Catalogue::seed(),
            manifest_permissions: std::slice::from_ref(&permission),
            grants: &GrantSet::default(),
            plugin_enabled: true,
            plugin_held: None,
            tool_on: true,
            tool_held: None,
            answer: Some(StandingAnswer::AllowSession),
        });
        let reason = decision.reason().unwrap();
        assert_eq!((decision.verdict, reason.rule), (Effect::Deny, "permission-granted"));
        assert_eq!(reason.text, "permission `notes.write` was not granted to `demo`");
        let rules: Vec<&str> = decision.steps.iter().map(|step| step.rule).collect();
        let all = [
            "plugin-enabled",
            "plugin-approved",
            "tool-on",
            "tool-approved",
            "permission-known",
            "permission-declared",
            "permission-granted",
            "permission-effect",
            "answer",
        ];
        assert_eq!(rules, all);
    }

    // A reason made from a server's text must not be able to forge the explanation.
    #[test]
    fn reasons_from_outside_are_escaped() {
        let tool = tool();
        let decision = decide(&DecisionInput {
            tool: &tool,
            tool_permission: None,
            catalogue: &Catalogue::empty(),
            manifest_permissions: &[],
            grants: &GrantSet::default(),
            plugin_enabled: true,
            plugin_held: Some("x\u{1b}[1A"),
            tool_on: true,
            tool_held: None,
            answer: None,
        });
        assert!(!decision.reason().unwrap().text.contains('\u{1b}'));
    }
}
