//! The check itself, and how its outcome reads.

use std::fmt;
use std::hash::Hash;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

/// What a check found.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// States that differ in more than names.
    pub states: usize,
    /// Steps to the farthest of them.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// The shortest way to a broken promise.
    pub broken: Option<Trace>,
}

/// A way to a broken promise.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The promise.
    pub promise: &'static str,
    /// Steps to it.
    pub length: usize,
    /// What happens, step by step, and the table after each.
    pub steps: Vec<(String, String)>,
}

/// A model whose ways can be told with one name for each claim and sweeper.
pub(crate) trait Told:
    Model<State: Copy + PartialEq + Hash + Send + Sync + 'static, Action: Copy + PartialEq>
    + Copy
    + Send
    + Sync
    + 'static
{
    /// The state after `action`, with every claim and sweeper under its own number; `None` where it cannot
    /// happen.
    fn step(&self, state: &Self::State, action: Self::Action) -> Option<Self::State>;

    /// The state that stands for all that differ from it in names only.
    fn canonical(&self, state: Self::State) -> Self::State;

    /// What happens, in plain words.
    fn words(before: &Self::State, action: Self::Action) -> String;

    /// The table in a few words.
    fn table(state: &Self::State) -> String;
}

/// Checks every state that can be reached, breadth first, until a promise is broken or there are no more.
///
/// Two states count as one where their 64-bit fingerprints are equal: among ten million states, by chance,
/// once in about 370,000 runs.
pub(crate) fn check(model: impl Told) -> Verdict {
    let began = Instant::now();
    let mut verdict = check_to(model, None);
    // The checker stops a moment after the first find, and keeps the last: is there none before it?
    while let Some(trace) = &verdict.broken {
        let shorter = check_to(model, Some(trace.length + 1));
        if shorter.broken.is_none() {
            break;
        }
        verdict = shorter;
    }
    Verdict { took: began.elapsed(), ..verdict }
}

/// Checks the states before the `depth`th on every way.
fn check_to<M: Told>(model: M, depth: Option<usize>) -> Verdict {
    // One thread: with more, breadth first is not quite so.
    let builder = model.checker().threads(1).finish_when(HasDiscoveries::AnyFailures);
    let builder = depth.into_iter().fold(builder, |builder, depth| builder.target_max_depth(depth));
    let checker = builder.spawn_bfs().join();
    let found = checker.discoveries().into_iter().map(|(promise, path)| (promise, path.into_vec()));
    // A step may break several: the first of the list says most of it.
    let promises = model.properties();
    let rank = |name: &str| promises.iter().position(|promise| promise.name == name);
    let shortest = found.min_by_key(|(promise, path)| (path.len(), rank(promise)));
    Verdict {
        states: checker.unique_state_count(),
        depth: checker.max_depth().saturating_sub(1),
        took: Duration::ZERO,
        broken: shortest.map(|(promise, path)| Trace {
            promise,
            length: path.len() - 1,
            steps: retell(&model, &path),
        }),
    }
}

/// The path again, with every claim and sweeper under one name throughout.
fn retell<M: Told>(model: &M, path: &[(M::State, Option<M::Action>)]) -> Vec<(String, String)> {
    let mut steps = Vec::new();
    let Some((mut now, _)) = path.first().copied() else { return steps };
    for (next, _) in &path[1..] {
        let mut actions = Vec::new();
        model.actions(&now, &mut actions);
        let mut after = actions.into_iter().filter_map(|action| Some((action, model.step(&now, action)?)));
        let Some((action, state)) = after.find(|(_, state)| model.canonical(*state) == *next) else { break };
        steps.push((M::words(&now, action), M::table(&state)));
        now = state;
    }
    steps
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, depth, took, broken } = self;
        match broken {
            Some(trace) => write!(f, "{trace}"),
            None => write!(
                f,
                "holds in all {states} states, up to {depth} steps deep ({:.1} s)",
                took.as_secs_f64()
            ),
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "breaks \"{}\"", self.promise)?;
        for (at, (step, table)) in self.steps.iter().enumerate() {
            write!(f, "\n  {:>2}. {step:<43} {table}", at + 1)?;
        }
        Ok(())
    }
}
