//! Requests whose plugin answers with a question, in the revisions in which results may be that.
//!
//! ```text
//! question --the client takes rounds---> the question, its state sealed; the client sends the request again
//!          \--it does not--------------> asked one by one, answers and state go back with the request, again
//! ```
//!
//! Owns the loop, its bounds and what becomes of a state on its way ([`seal`]). Who may be asked what is the business of an
//! [`Answerer`]; how a request is sent, of the caller. Refuses to keep anything while a client thinks.

mod question;
mod seal;

use std::time::SystemTime;

use plugward_protocol::modern::client;
use plugward_protocol::{InputRequest, InputRequired, RpcError};
use serde_json::value::RawValue;
use serde_json::{Value, json};

pub(crate) use question::Questions;
pub(crate) use seal::{KEY_SETTING, Purpose, Seal};

use crate::session::RequestError;

/// Questions in a row for one request. A dialogue has a few; a plugin that never ends would keep a person busy.
pub(crate) const MAX_ROUNDS: usize = 8;

/// What goes back with a request whose result was a question.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// The answers, by the keys they were asked for under.
    pub responses: Option<Box<RawValue>>,
    /// The text that came with the question, as it was written.
    pub state: Option<Box<RawValue>>,
}

/// Who answers the questions of one plugin about one request.
pub(crate) trait Answerer {
    /// The question as it may be shown, if the plugin may ask it and the client said that it can answer; else why not.
    fn prepare(&self, question: &InputRequest) -> Result<InputRequest, String>;

    /// Whether the client is handed the question and sends the request again.
    fn takes_rounds(&self) -> bool;

    /// Asks now, and waits for the answer.
    fn ask(&self, question: InputRequest) -> impl Future<Output = Result<Box<RawValue>, RpcError>> + Send;
}

/// The answerer of whoever can be asked nothing.
#[cfg(test)]
pub(crate) enum Nobody {}

#[cfg(test)]
impl Answerer for Nobody {
    fn prepare(&self, _: &InputRequest) -> Result<InputRequest, String> {
        match *self {}
    }

    fn takes_rounds(&self) -> bool {
        match *self {}
    }

    async fn ask(&self, _: InputRequest) -> Result<Box<RawValue>, RpcError> {
        match *self {}
    }
}

/// How a request ended for now.
#[derive(Debug)]
pub(crate) enum Ended {
    /// With its result.
    Reply(Box<RawValue>),
    /// With a question for the client, as a result.
    Question(Box<RawValue>),
}

/// Sends a request by `send`, with what came back for it, until it has a result or a question that the client takes.
pub(crate) async fn run<S, F>(
    answerer: Option<&(impl Answerer + Sync)>,
    seal: &Seal,
    purpose: Purpose<'_>,
    mut inputs: Option<Inputs>,
    mut send: S,
) -> Result<Ended, RequestError>
where
    S: FnMut(Option<Inputs>) -> F,
    F: Future<Output = Result<Box<RawValue>, RequestError>>,
{
    for _ in 0..MAX_ROUNDS {
        let asked = match send(inputs.take()).await {
            Err(RequestError::InputRequired(asked)) => asked,
            answered => return answered.map(Ended::Reply),
        };
        let Some(answerer) = answerer else {
            return Err(RequestError::Invalid("it asks for input, and whoever calls answers no questions".to_owned()));
        };
        let InputRequired { requests, state } = *asked;
        let prepared: Result<Vec<_>, String> = requests.iter().map(|request| answerer.prepare(request)).collect();
        let prepared = prepared.map_err(RequestError::Invalid)?;
        if answerer.takes_rounds() {
            return question(prepared, state, seal, purpose).map(Ended::Question);
        }
        let mut answers = Vec::with_capacity(prepared.len());
        for request in prepared {
            let (key, method) = (request.key.clone(), request.method.clone());
            answers.push((key, answer(&method, answerer.ask(request).await)?));
        }
        let responses = (!answers.is_empty()).then(|| client::responses(&answers));
        inputs = Some(Inputs { responses, state });
    }
    Err(RequestError::Invalid(format!("it asked {MAX_ROUNDS} times in a row for one request")))
}

/// What a client brought back, as it goes to the plugin; an error -32602 when its state was not given for this.
pub(crate) fn brought_back(
    seal: &Seal,
    purpose: Purpose<'_>,
    responses: Option<Box<RawValue>>,
    state: Option<&RawValue>,
) -> Result<Inputs, RpcError> {
    let refused = || RpcError::new(INVALID_PARAMS, "`requestState` was not given for this request, or is too old");
    let state = match state {
        None => None,
        Some(raw) => {
            let sealed: String = serde_json::from_str(raw.get()).map_err(|_| refused())?;
            Some(seal.open(purpose, &sealed, SystemTime::now()).ok_or_else(refused)?)
        }
    };
    Ok(Inputs { responses, state })
}

/// The code of parameters that are wrong.
const INVALID_PARAMS: i64 = -32602;

/// An answer as the plugin reads it. A person who was not asked in the end declined nothing: that is a cancel; for other
/// questions there is no such answer, and the request ends.
fn answer(method: &str, answered: Result<Box<RawValue>, RpcError>) -> Result<Box<RawValue>, RequestError> {
    match answered {
        Ok(answer) => Ok(answer),
        Err(_) if method == ELICITATION => Ok(to_raw(&json!({"action": "cancel"}))),
        Err(error) => {
            let message = format!("the client did not answer `{method}`: {}", error.message);
            Err(RequestError::Rejected(RpcError::new(INTERNAL_ERROR, message)))
        }
    }
}

const ELICITATION: &str = "elicitation/create";

/// The code of a failure that is nobody's parameters.
const INTERNAL_ERROR: i64 = -32603;

fn question(
    requests: Vec<InputRequest>,
    state: Option<Box<RawValue>>,
    seal: &Seal,
    purpose: Purpose<'_>,
) -> Result<Box<RawValue>, RequestError> {
    let mut text = String::from("{\"resultType\":\"input_required\"");
    if !requests.is_empty() {
        let members: Vec<(String, Box<RawValue>)> = requests.into_iter().map(written).collect();
        text.push_str(",\"inputRequests\":");
        text.push_str(client::responses(&members).get());
    }
    if let Some(state) = state {
        let too_long = || RequestError::Invalid("its `requestState` is too long".to_owned());
        text.push_str(",\"requestState\":");
        text.push_str(seal.close(purpose, &state, SystemTime::now()).ok_or_else(too_long)?.get());
    }
    text.push('}');
    RawValue::from_string(text).map_err(|_| RequestError::Invalid("its question cannot be written".to_owned()))
}

fn written(request: InputRequest) -> (String, Box<RawValue>) {
    let method = Value::from(request.method);
    let text = match request.params {
        Some(params) => format!("{{\"method\":{method},\"params\":{}}}", params.get()),
        None => format!("{{\"method\":{method}}}"),
    };
    (request.key, RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned()))
}

fn to_raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const PURPOSE: Purpose<'static> =
        Purpose { plugin: "fx", version: "1", client: "a", method: "tools/call", subject: b"s" };

    struct Person {
        takes_rounds: bool,
        answers: Result<Value, i64>,
    }

    impl Answerer for Person {
        fn prepare(&self, question: &InputRequest) -> Result<InputRequest, String> {
            match question.method.as_str() {
                "roots/list" => Err("it asks for `roots/list`, which it was not granted".to_owned()),
                _ => Ok(question.clone()),
            }
        }

        fn takes_rounds(&self) -> bool {
            self.takes_rounds
        }

        async fn ask(&self, _: InputRequest) -> Result<Box<RawValue>, RpcError> {
            self.answers.clone().map(|answer| to_raw(&answer)).map_err(|code| RpcError::new(code, "no"))
        }
    }

    fn asked(method: &str, state: Option<&str>) -> RequestError {
        let mut result = json!({"inputRequests": {"k": {"method": method, "params": {"message": "m"}}}});
        if let Some(state) = state {
            result["requestState"] = json!(state);
        }
        RequestError::InputRequired(Box::new(InputRequired::parse(&to_raw(&result)).unwrap()))
    }

    /// Runs a plugin that asks `rounds` times; what came back each time.
    async fn told(person: &Person, method: &str, rounds: usize) -> (Result<Ended, RequestError>, Vec<Option<String>>) {
        let (seal, seen) = (Seal::fresh().unwrap(), Mutex::new(Vec::new()));
        let send = |inputs: Option<Inputs>| {
            let shown = inputs.map(|inputs| {
                let text = |raw: Option<Box<RawValue>>| raw.map_or(String::new(), |raw| raw.get().to_owned());
                format!("{} {}", text(inputs.responses), text(inputs.state))
            });
            seen.lock().unwrap().push(shown);
            let round = seen.lock().unwrap().len();
            let state = format!("state-{round}");
            let answer = if round <= rounds { Err(asked(method, Some(&state))) } else { Ok(to_raw(&json!({}))) };
            async move { answer }
        };
        let ended = run(Some(person), &seal, PURPOSE, None, send).await;
        (ended, seen.into_inner().unwrap())
    }

    #[tokio::test]
    async fn a_client_that_takes_no_rounds_is_asked_until_there_is_a_result() {
        // MR-04: every answer of a round goes back together, with the state of that round.
        let person = Person { takes_rounds: false, answers: Ok(json!({"action": "accept"})) };
        let (ended, seen) = told(&person, "elicitation/create", 2).await;
        assert!(matches!(ended, Ok(Ended::Reply(_))), "{ended:?}");
        let back = |round: usize| Some(format!("{{\"k\":{{\"action\":\"accept\"}}}} \"state-{round}\""));
        assert_eq!(seen, [None, back(1), back(2)]);
    }

    #[tokio::test]
    async fn a_dialogue_without_end_ends() {
        let person = Person { takes_rounds: false, answers: Ok(json!({})) };
        let (ended, seen) = told(&person, "elicitation/create", usize::MAX).await;
        assert!(matches!(ended, Err(RequestError::Invalid(_))), "{ended:?}");
        assert_eq!(seen.len(), MAX_ROUNDS);
    }

    #[tokio::test]
    async fn a_client_that_takes_rounds_is_handed_the_question_with_a_sealed_state() {
        // MR-03, MR-04: what it brings back opens for this request, as the plugin wrote it.
        let seal = Seal::fresh().unwrap();
        let person = Person { takes_rounds: true, answers: Err(0) };
        let send = |_| async { Err(asked("elicitation/create", Some("a.b"))) };
        let Ok(Ended::Question(result)) = run(Some(&person), &seal, PURPOSE, None, send).await else { panic!() };
        let result: Value = serde_json::from_str(result.get()).unwrap();
        assert_eq!(result["resultType"], "input_required");
        assert_eq!(result["inputRequests"]["k"]["params"]["message"], "m");
        assert_ne!(result["requestState"], "a.b");
        let state = to_raw(&result["requestState"]);
        let inputs = brought_back(&seal, PURPOSE, Some(to_raw(&json!({"k": 1}))), Some(&state)).unwrap();
        assert_eq!((inputs.state.unwrap().get(), inputs.responses.unwrap().get()), ("\"a.b\"", "{\"k\":1}"));
        let other = Purpose { client: "b", ..PURPOSE };
        for (purpose, state) in [(other, &state), (PURPOSE, &to_raw(&json!("a.b"))), (PURPOSE, &to_raw(&json!(7)))] {
            assert_eq!(brought_back(&seal, purpose, None, Some(state)).unwrap_err().code, -32602);
        }
        assert!(brought_back(&seal, PURPOSE, None, None).unwrap().state.is_none(), "none is ever invented");
    }

    #[tokio::test]
    async fn what_may_not_be_asked_or_is_not_answered_ends_the_request() {
        let granted = Person { takes_rounds: false, answers: Ok(json!({})) };
        let (ended, seen) = told(&granted, "roots/list", 1).await;
        assert!(matches!(&ended, Err(RequestError::Invalid(reason)) if reason.contains("not granted")), "{ended:?}");
        assert_eq!(seen.len(), 1);
        let absent = Person { takes_rounds: false, answers: Err(-1) };
        let (ended, seen) = told(&absent, "elicitation/create", 1).await;
        assert!(ended.is_ok(), "a person who is not there cancels");
        assert!(seen[1].as_ref().unwrap().contains("cancel"));
        let (ended, _) = told(&absent, "sampling/createMessage", 1).await;
        assert!(matches!(ended, Err(RequestError::Rejected(_))), "{ended:?}");
        let send = |_| async { Err(asked("elicitation/create", None)) };
        let nobody = run(None::<&Nobody>, &Seal::fresh().unwrap(), PURPOSE, None, send).await;
        assert!(matches!(nobody, Err(RequestError::Invalid(_))));
    }
}
