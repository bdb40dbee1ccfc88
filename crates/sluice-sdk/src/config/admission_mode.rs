//! Whether requests are shed.

/// What [`Client::admit`](crate::Client::admit) does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdmissionMode {
    /// Every request is admitted, and no request is sent to the table.
    Off,
    /// Every request is admitted. The answers and a metric state which requests would be shed.
    Shadow,
    /// Requests are shed.
    #[default]
    Enforce,
}

impl AdmissionMode {
    /// The mode as the environment and metrics name it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Shadow => "shadow",
            Self::Enforce => "enforce",
        }
    }
}
