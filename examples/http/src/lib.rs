//! One program for each HTTP client, with Sluice and without, and a vendor that judges their calls for
//! itself.

pub mod vendor;

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The programs: `with` and `without` differ in one line.
pub mod programs {
    /// async-openai.
    pub mod async_openai {
        pub mod with;
        pub mod without;
    }
    /// The SDK of Amazon Bedrock.
    pub mod bedrock {
        pub mod with;
        pub mod without;
    }
    /// reqwest with middleware.
    pub mod reqwest {
        pub mod with;
        pub mod without;
    }
    /// tower services, over hyper.
    pub mod tower {
        pub mod with;
        pub mod without;
    }
}

/// Makes `CALLS` calls at once. Returns how many of them succeeded.
pub async fn many<F: Future<Output = Result<(), BoxError>>>(call: impl Fn() -> F) -> usize {
    let calls = futures_util::future::join_all((0..CALLS).map(|_| call())).await;
    calls.into_iter().filter(Result::is_ok).count()
}

/// The calls that each program makes.
pub const CALLS: usize = 60;
