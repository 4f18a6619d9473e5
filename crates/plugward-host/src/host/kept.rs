//! What stays of a plugin whose file is gone: a folder that was not mounted for a while looks like one that was emptied.
//!
//! Owns the memory of its approval and switches, which the same content, put back, gets again. Its private folder stays
//! with it. Refuses to give any of that to other content: what is approved is one digest.

use plugward_store::{ApprovalRow, PinRow, Store, StoreError, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::disabled_key;
use super::trust::project_key;

/// What becomes of a plugin's approval and private folder when it is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Afterwards {
    /// A person removed it.
    Forget,
    /// Its file went.
    Keep,
}

/// Setting with what is kept of a plugin.
pub(super) fn kept_key(id: &str) -> String {
    format!("kept.{id}")
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    package_digest: String,
    enabled: bool,
    disabled: bool,
    project: Option<String>,
    approval: Option<KeptApproval>,
    grants: Vec<String>,
    pins: Vec<KeptPin>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptApproval {
    digest: String,
    launch_digest: String,
    subject_json: String,
    how: String,
    who: String,
    at_us: i64,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptPin {
    tool: String,
    digest: String,
    definition_json: String,
}

impl Kept {
    /// What there is to keep of an installed plugin, as the text of a setting.
    pub(super) fn of(store: &Store, id: &str) -> Result<Option<String>, StoreError> {
        let Some(row) = store.plugin(id)? else { return Ok(None) };
        let approval = store.current_approval(id)?.map(|row| KeptApproval {
            digest: row.digest,
            launch_digest: row.launch_digest,
            subject_json: row.subject_json,
            how: row.how,
            who: row.who,
            at_us: row.at_us,
        });
        let pin = |row: PinRow| KeptPin { tool: row.tool, digest: row.digest, definition_json: row.definition_json };
        let kept = Self {
            package_digest: row.package_digest,
            enabled: row.enabled,
            disabled: store.setting(&disabled_key(id))?.is_some(),
            project: store.setting(&project_key(id))?,
            approval,
            grants: store.grants(id)?,
            pins: store.pins(id)?.into_iter().map(pin).collect(),
        };
        Ok(serde_json::to_string(&kept).ok())
    }

    /// What was kept of a plugin with exactly this content.
    pub(super) fn read(store: &Store, id: &str, package_digest: &str) -> Result<Option<Self>, StoreError> {
        let kept = store.setting(&kept_key(id))?.and_then(|text| serde_json::from_str::<Self>(&text).ok());
        Ok(kept.filter(|kept| kept.package_digest == package_digest))
    }

    /// Whether a person wanted it running.
    pub(super) fn enabled(&self) -> bool {
        self.enabled
    }

    /// Gives it back to the plugin, which is installed again.
    pub(super) fn restore(&self, tx: &WriteTransaction<'_>, id: &str) -> Result<(), StoreError> {
        tx.set_setting(&project_key(id), self.project.as_deref())?;
        tx.set_setting(&disabled_key(id), self.disabled.then_some("1"))?;
        if let Some(approval) = &self.approval {
            tx.record_approval(&ApprovalRow {
                plugin_id: id.to_owned(),
                digest: approval.digest.clone(),
                launch_digest: approval.launch_digest.clone(),
                subject_json: approval.subject_json.clone(),
                how: approval.how.clone(),
                who: approval.who.clone(),
                at_us: approval.at_us,
                revoked_at_us: None,
            })?;
        }
        tx.set_grants(id, &self.grants)?;
        let pin = |pin: &KeptPin| PinRow {
            plugin_id: id.to_owned(),
            tool: pin.tool.clone(),
            digest: pin.digest.clone(),
            definition_json: pin.definition_json.clone(),
        };
        tx.set_pins(id, &self.pins.iter().map(pin).collect::<Vec<_>>())
    }
}
