//! Plugins of which no program runs: prompts (`type: agent`) and webhooks (`type: integration`).

mod prompts;
mod receiver;
mod webhooks;

use std::fs;

use plugward_host::PluginView;
use tempfile::TempDir;

use crate::support::{Settings, TestHost};

/// A host, and a folder of plugin files.
struct Bench {
    test: TestHost,
    files: TempDir,
}

impl Bench {
    async fn new(settings: Settings) -> Self {
        Self { test: TestHost::with(settings).await, files: tempfile::tempdir().unwrap() }
    }

    /// Installs the plugin of this file.
    async fn install(&self, name: &str, text: &str) -> PluginView {
        let file = self.files.path().join(format!("{name}.yaml"));
        fs::write(&file, text).unwrap();
        self.test.host.install(&file, None).await.unwrap()
    }

    async fn run(&self, name: &str, text: &str) {
        self.install(name, text).await;
        self.test.approve(name).await;
        self.test.host.enable(name).await.unwrap();
    }
}
