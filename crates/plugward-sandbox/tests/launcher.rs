//! The launcher, seen from a host.

fn main() {
    plugward_sandbox::launcher_main_if_requested();
}
