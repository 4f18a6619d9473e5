//! What a plugin may ask of whoever called it, and how its questions look when they are shown.
//!
//! ```text
//! asked --granted? declared? well formed?--> without secrets, with the plugin's name on it --> shown
//! ```
//!
//! Owns these checks, and what a plugin is told it may ask: what the client declared and the plugin was granted, and
//! nothing else. Refuses to answer.

use plugward_policy::{Catalogue, Effect, Manifest, PermissionName, PluginId};
use plugward_protocol::{InputRequest, RpcError};
use plugward_store::Redactor;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::Answerer;
use crate::counterpart::Counterpart;
use crate::raw_object::RawObject;
use crate::session::masked;

/// Longest question, in bytes. A conversation for a model fits; more than a person reads does.
const MAX_QUESTION_BYTES: usize = 256 * 1024;

/// Fields of a form. A person fills in a few.
const MAX_FIELDS: usize = 64;

/// Member of `_meta` that says which plugin asks, for clients that can show it.
const PLUGIN_META: &str = "plugward/plugin";

/// What can be asked: method, capability of the client, permission of the plugin.
const KINDS: [(&str, &str, &str); 3] = [
    ("elicitation/create", "elicitation", "mcp.elicitation"),
    ("sampling/createMessage", "sampling", "mcp.sampling"),
    ("roots/list", "roots", "mcp.roots"),
];

/// Kinds of fields that a form may have.
const FIELD_KINDS: [&str; 4] = ["string", "number", "integer", "boolean"];

/// What one plugin may ask of one client.
pub(crate) struct Questions<'a> {
    plugin: &'a PluginId,
    secrets: &'a Redactor,
    counterpart: &'a Counterpart,
    /// Capabilities that the client declared and the plugin was granted, as the client wrote them.
    open: Map<String, Value>,
    /// Permissions that are missing.
    not_granted: Vec<&'static str>,
}

impl<'a> Questions<'a> {
    /// Of the plugin with this manifest.
    pub(crate) fn new(
        manifest: &'a Manifest,
        catalogue: &Catalogue,
        secrets: &'a Redactor,
        counterpart: &'a Counterpart,
    ) -> Self {
        let is_granted = |permission: &str| {
            PermissionName::new(permission)
                .is_ok_and(|name| manifest.permissions.contains(&name) && catalogue.effect(&name) == Effect::Allow)
        };
        let mut open: Map<String, Value> = serde_json::from_str(counterpart.capabilities.get()).unwrap_or_default();
        open.retain(|name, value| {
            value.is_object() && KINDS.iter().any(|(_, kind, permission)| kind == name && is_granted(permission))
        });
        let not_granted = KINDS.iter().map(|(_, _, permission)| *permission).filter(|name| !is_granted(name)).collect();
        Self { plugin: &manifest.id, secrets, counterpart, open, not_granted }
    }

    /// What the plugin is told it may ask.
    pub(crate) fn capabilities(&self) -> Box<RawValue> {
        serde_json::value::to_raw_value(&self.open).unwrap_or_else(|_| RawValue::NULL.to_owned())
    }

    fn check(&self, question: &InputRequest) -> Result<(), String> {
        let method = plugward_policy::visible(&question.method.chars().take(64).collect::<String>());
        let Some((_, kind, permission)) = KINDS.iter().find(|(method, _, _)| *method == question.method) else {
            return Err(format!("it asks for `{method}`, which nobody can answer"));
        };
        if self.not_granted.contains(permission) {
            return Err(format!("it asks for `{method}` without the permission `{permission}`"));
        }
        let Some(declared) = self.open.get(*kind) else {
            return Err(format!("it asks for `{method}`, which the client did not say it can answer"));
        };
        let params: Value = question
            .params
            .as_ref()
            .map_or(Ok(json!({})), |raw| serde_json::from_str(raw.get()))
            .map_err(|_| format!("its `{method}` cannot be read"))?;
        match *kind {
            "elicitation" => check_elicitation(&params, declared),
            "sampling" => {
                let uses_tools = ["tools", "toolChoice"].iter().any(|name| params.get(name).is_some());
                match uses_tools && declared.get("tools").is_none() {
                    true => Err("it asks for sampling with tools, which the client did not declare".to_owned()),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

/// EL-01, EL-03, SB-09: a form is flat and of a mode that was declared; an address is one of the web.
fn check_elicitation(params: &Value, declared: &Value) -> Result<(), String> {
    let mode = params.get("mode").and_then(Value::as_str).unwrap_or("form");
    // `{}` is form alone.
    let is_declared = declared.get(mode).is_some() || (mode == "form" && declared.get("url").is_none());
    if !is_declared {
        return Err("it asks in a mode that the client did not declare".to_owned());
    }
    if !params.get("message").is_some_and(Value::is_string) {
        return Err("it asks without a message".to_owned());
    }
    if mode == "url" {
        let url = params.get("url").and_then(Value::as_str).unwrap_or_default();
        let is_web = ["https://", "http://"].iter().any(|scheme| url.starts_with(scheme));
        return if is_web { Ok(()) } else { Err("it asks to open an address that is none of the web".to_owned()) };
    }
    let schema = &params["requestedSchema"];
    let fields = schema.get("properties").and_then(Value::as_object);
    let fields = fields.filter(|fields| schema["type"] == "object" && fields.len() <= MAX_FIELDS);
    match fields.is_some_and(|fields| fields.values().all(is_plain)) {
        true => Ok(()),
        false => Err("it asks with a form that is not a flat object of plain fields".to_owned()),
    }
}

/// A text, a number, a truth value, or a choice of several texts.
fn is_plain(field: &Value) -> bool {
    let kind = field.get("type").and_then(Value::as_str).unwrap_or_default();
    if kind == "array" {
        // A choice of several, as the newer revisions have it: its items are listed, and texts.
        let items = &field["items"];
        return items.get("enum").is_some_and(Value::is_array) || items.get("anyOf").is_some_and(Value::is_array);
    }
    FIELD_KINDS.contains(&kind) && field.get("properties").is_none()
}

impl Questions<'_> {
    /// The question as it is shown: whoever answers sees who asks.
    fn marked(&self, question: &InputRequest) -> Result<InputRequest, String> {
        let empty = RawObject::default();
        let mut params = match &question.params {
            None => empty,
            Some(raw) => {
                if raw.get().len() > MAX_QUESTION_BYTES {
                    return Err(format!("it asks with more than {MAX_QUESTION_BYTES} bytes"));
                }
                RawObject::parse(&masked(self.secrets, raw.clone())).ok_or("its question repeats a key")?
            }
        };
        if let Some(message) = params.get_str("message") {
            params.set_str("message", &format!("{} asks: {message}", self.plugin));
        }
        let mut meta = params.get("_meta").and_then(RawObject::parse).unwrap_or_default();
        meta.set_str(PLUGIN_META, self.plugin.as_str());
        params.set("_meta", meta.to_raw());
        Ok(InputRequest { params: Some(params.to_raw()), ..question.clone() })
    }
}

impl Answerer for Questions<'_> {
    fn prepare(&self, question: &InputRequest) -> Result<InputRequest, String> {
        self.check(question)?;
        self.marked(question)
    }

    fn takes_rounds(&self) -> bool {
        self.counterpart.takes_rounds()
    }

    async fn ask(&self, question: InputRequest) -> Result<Box<RawValue>, RpcError> {
        self.counterpart.ask(self.plugin, question.method, question.params).await
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "a test reads better with `json!` as the argument")]
mod tests {
    use super::*;

    fn manifest(permissions: &str) -> Manifest {
        let text = format!(
            "id: fx\nname: F\nversion: 1.0.0\npermissions: {permissions}\nbackend:\n  type: mcp\n  transport: stdio\n  command: x\n"
        );
        plugward_policy::parse_manifest(&text, "plugin.yaml").unwrap().manifest
    }

    fn raw(value: &Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).unwrap()
    }

    fn ask(permissions: &str, declared: &Value, method: &str, params: Value) -> Result<Value, String> {
        let (manifest, redactor) = (manifest(permissions), Redactor::new());
        redactor.set_secrets("fx", &["sk-0123456789abcdef".to_owned()]);
        let counterpart = Counterpart::of_rounds("a", raw(declared));
        let questions = Questions::new(&manifest, &Catalogue::seed(), &redactor, &counterpart);
        let question = InputRequest { key: "k".to_owned(), method: method.to_owned(), params: Some(raw(&params)) };
        let shown = questions.prepare(&question)?;
        Ok(serde_json::from_str(shown.params.unwrap().get()).unwrap())
    }

    fn form(properties: &Value) -> Value {
        json!({"message": "Name?", "requestedSchema": {"type": "object", "properties": properties}})
    }

    #[test]
    fn only_what_was_granted_and_declared_may_be_asked() {
        // BP-14, and off by default: a plugin that nobody allowed to ask gets no word to a person.
        let all = json!({"elicitation": {}, "sampling": {}, "roots": {}, "later": {}});
        for (method, kind, permission) in KINDS {
            let params = if kind == "elicitation" { form(&json!({"a": {"type": "string"}})) } else { json!({}) };
            let granted = format!("[{permission}]");
            assert!(ask(&granted, &all, method, params.clone()).is_ok(), "{method}: the control");
            let refused = ask("[]", &all, method, params.clone()).unwrap_err();
            assert!(refused.contains(permission), "{refused}");
            assert!(ask(&granted, &json!({}), method, params.clone()).is_err(), "{method}: not declared");
            let (manifest, redactor) = (manifest(&granted), Redactor::new());
            let counterpart = Counterpart::of_rounds("a", raw(&all));
            let told = Questions::new(&manifest, &Catalogue::seed(), &redactor, &counterpart).capabilities();
            assert_eq!(told.get(), format!("{{\"{kind}\":{{}}}}"), "a plugin is told what it may ask, and no more");
            let denied = Questions::new(&manifest, &Catalogue::empty(), &redactor, &counterpart).capabilities();
            assert_eq!(denied.get(), "{}", "the deployment has a word");
        }
        assert!(ask("[mcp.roots]", &all, "tools/call", json!({})).is_err());
    }

    #[test]
    fn a_person_sees_who_asks_and_no_secret() {
        // EL-02, invariant 4.
        let mut params = form(&json!({"name": {"type": "string"}}));
        params["message"] = json!("Is sk-0123456789abcdef right?");
        let shown = ask("[mcp.elicitation]", &json!({"elicitation": {}}), "elicitation/create", params).unwrap();
        assert_eq!(shown["message"], "fx asks: Is *** right?");
        assert_eq!(shown["_meta"][PLUGIN_META], "fx");
    }

    #[test]
    fn forms_are_flat_and_addresses_of_the_web() {
        // EL-03, SB-09
        let elicit = |declared: Value, params: Value| {
            ask("[mcp.elicitation]", &json!({"elicitation": declared}), "elicitation/create", params)
        };
        let plain = json!({
            "a": {"type": "string", "format": "email"}, "b": {"type": "integer"}, "c": {"type": "boolean"},
            "d": {"type": "string", "enum": ["x"]}, "e": {"type": "array", "items": {"type": "string", "enum": ["x"]}},
        });
        assert!(elicit(json!({}), form(&plain)).is_ok());
        assert!(elicit(json!({"form": {}, "url": {}}), form(&plain)).is_ok());
        assert!(elicit(json!({"url": {}}), form(&plain)).is_err(), "a mode that was not declared");
        for nested in [
            json!({"a": {"type": "object", "properties": {}}}),
            json!({"a": {"type": "array", "items": {"type": "object"}}}),
            json!({"a": {}}),
        ] {
            assert!(elicit(json!({}), form(&nested)).is_err(), "{nested}");
        }
        assert!(elicit(json!({}), json!({"message": "m", "requestedSchema": {"type": "array"}})).is_err());
        assert!(elicit(json!({}), json!({"requestedSchema": {"type": "object", "properties": {}}})).is_err());
        let url = |url: &str| json!({"mode": "url", "message": "m", "url": url, "elicitationId": "1"});
        assert!(elicit(json!({"url": {}}), url("https://sign.example/in")).is_ok());
        assert!(elicit(json!({}), url("https://sign.example/in")).is_err(), "`{{}}` is form alone");
        for bad in ["javascript:alert(1)", "file:///etc/passwd", "data:text/html,x", ""] {
            assert!(elicit(json!({"url": {}}), url(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn tools_in_sampling_have_to_be_declared() {
        // SA-01
        let sample = |declared: Value, params: Value| {
            ask("[mcp.sampling]", &json!({"sampling": declared}), "sampling/createMessage", params)
        };
        assert!(sample(json!({}), json!({"messages": []})).is_ok());
        assert!(sample(json!({}), json!({"messages": [], "tools": []})).is_err());
        assert!(sample(json!({"tools": {}}), json!({"messages": [], "tools": []})).is_ok());
        assert!(sample(json!({}), json!({"systemPrompt": "x".repeat(MAX_QUESTION_BYTES)})).is_err());
    }
}
