//! The calls that end a grant, while requests hang.

use sluice_sdk::reservations::{ReservationConfig, ReservationTracker};
use sluice_sdk::{Grant, Leases};

use super::every_call::granted;
use super::*;

const INLINE: &str = "assemblyai#concurrent";
/// How long a release of an inline lease is tried, the look after it, and two times three tries of the lane.
const INLINE_RELEASE: Duration = Duration::from_secs(9).saturating_add(REQUEST.saturating_mul(6));

/// Grants that were made before DynamoDB hangs.
pub(super) struct Held {
    failed: Grant,
    inline: Grant,
    /// All that these hold is stale at once.
    by_hand: ReservationTracker,
    by_itself: ReservationTracker,
}

impl Held {
    pub(super) async fn new(network: &Network, client: &Client) -> Self {
        let slots = Limit::concurrent(Amount::from_tokens(2), Cost::ONE).unwrap();
        client.ops().apply_limit(&dimension(INLINE), &slots).await.unwrap();
        let inline = Client::builder(TABLE).endpoint_url(network.proxy.url()).attempt_timeout(ATTEMPT);
        let inline = inline.self_heal(false).leases(Leases::Inline).connect_with(&sdk_config());
        Self {
            failed: granted(client, HELD).await,
            inline: granted(&inline, INLINE).await,
            by_hand: stale(client).await,
            by_itself: stale(client).await,
        }
    }

    pub(super) async fn give_back(self) {
        let Self { failed, inline, by_hand, by_itself } = self;
        let failed = within(REQUEST * 2, "failed", failed.failed());
        let inline = within(INLINE_RELEASE, "release of an inline lease", inline.release());
        let stale = within(REQUEST * 2, "release_stale", by_hand.release_stale());
        by_itself.start();
        let stopped = async {
            // Until it releases.
            tokio::time::sleep(ATTEMPT / 2).await;
            within(REQUEST * 2, "stop", by_itself.stop()).await;
            by_itself.stale_report()
        };
        let (failed, inline, stale, stopped) = tokio::join!(failed, inline, stale, stopped);
        assert!(failed.is_err() && inline.is_err(), "{failed:?} {inline:?}");
        assert_eq!((stale.failed, stopped.failed), (1, 1), "{stale:?} {stopped:?}");
    }
}

/// A tracker that looks every few milliseconds once it is started, and holds one grant.
async fn stale(client: &Client) -> ReservationTracker {
    let mut config = ReservationConfig::default();
    config.max_reservation_age = Duration::ZERO;
    config.stale_cleanup_interval = Duration::from_millis(10);
    let tracker = client.reservations(config);
    tracker.store("call", HELD, granted(client, HELD).await).unwrap();
    tracker
}
