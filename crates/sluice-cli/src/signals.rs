//! Being asked to stop.

/// Ctrl-C, or SIGTERM. Listened for from the call on and not from the first poll, so that a signal is heard that comes while
/// the program is still busy with something else: call it before the work that it is to end.
pub(crate) fn stop_requested() -> impl Future<Output = ()> {
    let (interrupted, terminated) = (interrupted(), terminated());
    async {
        tokio::select! {
            () = interrupted => {}
            () = terminated => {}
        }
    }
}

/// SIGTERM, listened for from the call on.
#[cfg(unix)]
pub(crate) fn terminated() -> impl Future<Output = ()> {
    heard(tokio::signal::unix::SignalKind::terminate())
}

/// Ctrl-C, listened for from the call on.
#[cfg(unix)]
pub(crate) fn interrupted() -> impl Future<Output = ()> {
    heard(tokio::signal::unix::SignalKind::interrupt())
}

#[cfg(unix)]
fn heard(kind: tokio::signal::unix::SignalKind) -> impl Future<Output = ()> {
    let listener = tokio::signal::unix::signal(kind);
    async {
        match listener {
            Ok(mut listener) => drop(listener.recv().await),
            Err(_) => std::future::pending().await,
        }
    }
}

/// There is no SIGTERM here.
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
