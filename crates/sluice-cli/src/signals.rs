//! Signals that ask the program to stop.

/// Ends at Ctrl-C or SIGTERM. Listens from the call on, not from the first poll, so that no signal is missed
/// while the program is busy with something else. Call it before the work that the signal should end.
pub(crate) fn stop_requested() -> impl Future<Output = ()> {
    let (interrupted, terminated) = (interrupted(), terminated());
    async {
        tokio::select! {
            () = interrupted => {}
            () = terminated => {}
        }
    }
}

/// Ends at SIGTERM; listens from the call on.
#[cfg(unix)]
pub(crate) fn terminated() -> impl Future<Output = ()> {
    received(tokio::signal::unix::SignalKind::terminate())
}

/// Ends at Ctrl-C; listens from the call on.
#[cfg(unix)]
pub(crate) fn interrupted() -> impl Future<Output = ()> {
    received(tokio::signal::unix::SignalKind::interrupt())
}

#[cfg(unix)]
fn received(kind: tokio::signal::unix::SignalKind) -> impl Future<Output = ()> {
    let listener = tokio::signal::unix::signal(kind);
    async {
        match listener {
            Ok(mut listener) => drop(listener.recv().await),
            Err(_) => std::future::pending().await,
        }
    }
}

/// This system has no SIGTERM.
#[cfg(not(unix))]
pub(crate) fn terminated() -> impl Future<Output = ()> {
    std::future::pending()
}

#[cfg(not(unix))]
pub(crate) async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
