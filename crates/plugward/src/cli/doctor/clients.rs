//! What `doctor` says about agents' own settings. Reads them, and names other entries; shows nothing of what they hold.

use super::Row;
use crate::cli::{clients, cost};
use crate::clients::{Report, Standing};
use crate::settings::Settings;

/// Agents that are here: whether their entry of ours still starts us, and whose entries are not ours.
pub(super) fn rows(settings: &Settings) -> Vec<Row> {
    let Ok(machine) = clients::machine(settings) else { return Vec::new() };
    let others = |report: &Report| match report.others.len() {
        0 => String::new(),
        1 => format!("; 1 other: {}", report.others.join("")),
        number => format!("; {number} others: {}", report.others.join(", ")),
    };
    let row = |report: &Report| {
        let check = format!("client {}", report.client.name);
        let file = report.file.display();
        let fix = format!("plugward connect {}", report.client.name);
        match &report.standing {
            Standing::NotFound if report.is_recorded => Some(Row::warning(
                &check,
                format!("{file}: gone, and our entry with it"),
                "the agent does not get your tools any more",
                &format!("{fix}; or, if it is gone for good: plugward disconnect {}", report.client.name),
            )),
            Standing::NotFound => None,
            Standing::Found if report.is_recorded => Some(Row::warning(
                &check,
                format!("{file}: our entry was taken out by somebody else{}", others(report)),
                "the agent does not get your tools any more",
                &fix,
            )),
            Standing::Found => Some(Row::ok(&check, format!("{file}: not connected{}", others(report)))),
            Standing::Connected => Some(Row::ok(&check, format!("{file}: connected{}", others(report)))),
            Standing::Drifted(detail) => Some(Row::warning(
                &check,
                format!("{file}: our entry is not what plugward writes: {detail}{}", others(report)),
                "the agent starts something else, or nothing",
                &format!("look at the file, then: {fix}"),
            )),
            Standing::Broken(detail) => Some(Row::warning(
                &check,
                format!("{file}: {detail}"),
                "the agent may not read it either",
                "mend the file",
            )),
        }
    };
    let records = machine.records_fault().map(|fault| {
        let meaning = "`connect` and `disconnect` write nothing while it is";
        Row::warning("client records", fault.to_string(), meaning, "mend the file, or move it away")
    });
    records.into_iter().chain(machine.survey().iter().filter_map(row)).collect()
}

/// Profiles with a budget.
pub(super) async fn budgets(settings: &Settings) -> Vec<Row> {
    let row = |costs: &cost::Costs| {
        let (check, found, is_within) = costs.finding();
        let fix =
            "see `plugward tools --cost`, then name fewer plugins or tools in the profile, or set `mode = \"search\"`";
        if is_within {
            Row::ok(&check, found)
        } else {
            Row::warning(&check, found, "it fills the agent's context", fix)
        }
    };
    cost::of_budgets(settings).await.iter().map(row).collect()
}
