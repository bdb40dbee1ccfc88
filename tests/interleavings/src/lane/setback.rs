//! Why a caller waits: of no matter here.

#[derive(Clone, Debug)]
pub(crate) struct Setback;

impl Setback {
    pub(crate) fn unsent(self) -> Self {
        self
    }

    pub(crate) fn following(self, _: Option<&Self>) -> Self {
        self
    }
}
