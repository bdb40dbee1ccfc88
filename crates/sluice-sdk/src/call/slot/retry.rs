//! A slot whose call is made again after a refusal of the vendor.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use crate::call::error::LimitError;
use crate::call::slot::{Slot, SlotBuilder};
use crate::lane::poll::spread_after_cool_down;
use crate::vendor::rate_limited::Decision;

/// A slot whose call may be made several times: see [`SlotBuilder::retry`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens until `run` is called"]
pub struct RetrySlot {
    slot: SlotBuilder,
    retries: u32,
}

/// Whether the log names calls with retries that report no reply.
#[derive(Debug, Default)]
struct Unreported(AtomicBool);

impl SlotBuilder {
    /// Warns, once for a client: a call whose reply is not reported is never made again.
    fn warn_unreported(&self) {
        if !self.client.inner.extensions.of::<Unreported>().0.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                event = "retry.unreported",
                dimensions = %self.request.dimensions(),
                "a slot with `.retry(n)` ended without `slot.reply`: a call whose reply is not reported is never made again"
            );
        }
    }
}

impl RetrySlot {
    pub(super) const fn new(slot: SlotBuilder, retries: u32) -> Self {
        Self { slot, retries }
    }

    /// As [`SlotBuilder::run`], and again if the vendor refused the call for a while: if the closure reported
    /// the reply ([`Slot::reply`]), and the reply asks for a pause that is worth sleeping through
    /// ([`Decision::RetryInline`]). Then the result of the closure, a value or an error, is dropped, and the
    /// closure runs again in a new slot after the pause. After the last try, its result is returned.
    ///
    /// In shadow mode ([`Mode`](crate::Mode)) the closure runs once.
    ///
    /// Each try waits for its own start, and holds nothing during the pause. A
    /// [`timeout`](SlotBuilder::timeout) or [`until`](SlotBuilder::until) is for all tries together: a pause
    /// that would end later is not begun.
    ///
    /// # Errors
    /// As for [`SlotBuilder::run`], of the last try.
    pub async fn run<T, E: From<LimitError>>(
        mut self,
        mut call: impl AsyncFnMut(Slot) -> Result<T, E>,
    ) -> Result<T, E> {
        self.slot.fix_end();
        loop {
            let (result, decision) = self.slot.clone().run_once(&mut call).await;
            if decision.is_none() && result.is_ok() {
                self.slot.warn_unreported();
            }
            let Some(Decision::RetryInline { wait }) = decision else { return result };
            if self.slot.client.inner.config.mode.is_shadow() {
                // The product behaves as without Sluice.
                return result;
            }
            // Calls that were refused together do not come back together.
            let pause = wait + spread_after_cool_down(wait, None, Duration::MAX);
            if self.retries == 0 || self.slot.ends_within(pause) {
                return result;
            }
            self.retries -= 1;
            sleep(pause).await;
        }
    }
}
