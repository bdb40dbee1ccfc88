//! Being asked to stop.

/// Waits for Ctrl-C, or for SIGTERM.
pub(crate) async fn stop_requested() {
    tokio::select! {
        () = interrupted() => {}
        () = terminated() => {}
    }
}

/// Waits for SIGTERM.
pub(crate) async fn terminated() {
    #[cfg(unix)]
    if let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        terminate.recv().await;
        return;
    }
    std::future::pending().await
}

async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
