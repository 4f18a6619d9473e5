//! Leaving out one layer at a time: a suite that stays green without a layer does not test it.

use plugward_sandbox::{Level, SpawnError};

use crate::{
    table::{Expected, rows, run},
    world::{World, launcher_without, through_bwrap},
};

/// Layers that are ours where bubblewrap makes the others. Capabilities are gone by then.
const LAYERS_BEHIND_BWRAP: [&str; 3] = ["landlock", "seccomp", "limits"];
/// Every layer of level `full`.
const LAYERS: [&str; 10] =
    ["files", "read-only", "processes", "network", "ipc", "host-name", "capabilities", "landlock", "seccomp", "limits"];

// Requirement 146: without any one layer at least one attack is answered differently.
pub(crate) fn leaving_out_any_layer_is_noticed() {
    let world = World::new();
    let rows = rows(&world);
    for layer in if through_bwrap() { &LAYERS_BEHIND_BWRAP[..] } else { &LAYERS } {
        let launcher = launcher_without(layer);
        let noticed: Vec<&str> = rows
            .iter()
            .filter(|row| {
                let Expected::Stopped(errors) = row.full else { return false };
                !run(&world, &launcher, Level::Full, row, false).is_some_and(|errno| errors.contains(&errno))
            })
            .map(|row| row.what)
            .collect();
        println!("without {layer}: {}", noticed.join(", "));
        assert!(!noticed.is_empty(), "no attack notices that `{layer}` is missing");
    }
}

/// Without these, what the level says would be wrong, so a start must be refused before the plugin runs.
pub(crate) fn witness_refuses_a_level_that_lacks_a_layer() {
    let world = World::new();
    let full = if through_bwrap() {
        &["landlock", "seccomp"][..]
    } else {
        &["files", "processes", "network", "capabilities", "landlock", "seccomp"]
    };
    for (level, layers) in
        [(Level::Full, full), (Level::Partial, &["landlock", "seccomp"]), (Level::Limited, &["seccomp"])]
    {
        for layer in layers {
            let error = launcher_without(layer).spawn(&world.attack(level, "stat", &["/"])).unwrap_err();
            println!("{level} without {layer}: {error}");
            assert!(matches!(&error, SpawnError::NotHeld { .. }), "{layer}: {error}");
        }
    }
}
