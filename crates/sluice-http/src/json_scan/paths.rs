//! Which of the wanted values a place in a document leads to.

/// The way to a value, by names of fields, and what it is. `*` stands for each element of a list.
pub(crate) type Want<F> = (&'static [&'static str], F);

/// The values that are wanted: at most 32.
pub(crate) struct Wants<F: 'static>(&'static [Want<F>]);

/// The wants that a place leads to: a bit for each, and how many steps of their paths are done.
#[derive(Clone, Copy)]
pub(crate) struct Reached {
    wants: u32,
    steps: usize,
}

impl Reached {
    pub(crate) const NOTHING: Self = Self { wants: 0, steps: 0 };

    pub(crate) const fn is_empty(self) -> bool {
        self.wants == 0
    }
}

impl<F: Copy> Wants<F> {
    pub(crate) const fn new(wants: &'static [Want<F>]) -> Self {
        Self(wants)
    }

    pub(crate) const fn root(&self) -> Reached {
        Reached { wants: u32::MAX, steps: 0 }
    }

    pub(crate) fn field(&self, here: Reached, name: &[u8]) -> Reached {
        self.step(here, |step| step.as_bytes() == name)
    }

    pub(crate) fn element(&self, here: Reached) -> Reached {
        self.step(here, |step| step == "*")
    }

    /// The want whose path ends here.
    pub(crate) fn reached(&self, here: Reached) -> Option<F> {
        self.at(here).find(|(_, (path, _))| path.len() == here.steps).map(|(_, (_, field))| *field)
    }

    fn step(&self, here: Reached, fits: impl Fn(&str) -> bool) -> Reached {
        let next = self.at(here).filter(|(_, (path, _))| path.get(here.steps).is_some_and(|step| fits(step)));
        Reached { wants: next.fold(0, |wants, (bit, _)| wants | bit), steps: here.steps + 1 }
    }

    fn at(&self, here: Reached) -> impl Iterator<Item = (u32, &'static Want<F>)> {
        let bits = (0..32).map(|shift| 1_u32 << shift);
        bits.zip(self.0).filter(move |(bit, _)| here.wants & bit != 0)
    }
}
