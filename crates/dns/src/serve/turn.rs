//! What becomes of a question: an answer at once, or somebody to wait for.
//!
//! In: a question, and what is [`Serving`] now: the book of our names and whoever stands beyond them, which are exchanged
//! together. Out: a reply, or for what to wait; and, later, the reply after all. Both kinds of listeners come through here,
//! so a rule that holds for one holds for the other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout_at;

use crate::answer::{Chase, Outcome, Scratch};
use crate::beyond::{Beyond, Question, Ruling};
use crate::book::Book;
use crate::metrics::Fact;
use crate::wire::rcode;

/// Who answers.
pub(super) struct Serving {
    book: Arc<Book>,
    beyond: Arc<dyn Beyond>,
    /// Whether there are rules for our own names; found out once, so that their absence costs nothing.
    has_rules: bool,
    /// Whether questions are logged; found out once, too.
    pub(super) logs: bool,
}

/// What becomes of a question.
pub(super) enum Turn {
    /// This is the reply; an empty one if the rules say that there is none.
    Reply,
    /// It was none.
    Silent,
    /// There is something to wait for.
    Later(Wait),
}

/// For what to wait.
pub(super) enum Wait {
    /// For others.
    Beyond,
    /// For what others know of the end of an alias of ours.
    Chase(Box<Chase>),
    /// For our own names to be known; what is to be said if they are not is written already.
    Ready,
}

impl Serving {
    pub(super) fn new(book: Arc<Book>, beyond: Arc<dyn Beyond>) -> Self {
        let (has_rules, logs) = (beyond.has_rules(), beyond.logs());
        Self { book, beyond, has_rules, logs }
    }

    /// Logs a question and its reply, if such questions are logged.
    pub(super) fn log(&self, question: &Question<'_>, reply: &[u8], took: Duration) {
        if self.logs {
            self.beyond.log(question, reply, took);
        }
    }

    /// Answers without waiting, if that can be.
    #[inline]
    pub(super) fn answer(
        &self,
        question: &Question<'_>,
        scratch: &mut Scratch,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Turn {
        let outcome = self.book.answer(question.message, question.transport, scratch, out);
        match &outcome {
            Outcome::Beyond => return self.elsewhere(question, now, out),
            Outcome::Silent => return Turn::Silent,
            // A search path is walked by whoever stands beyond, and rules hold for each of its steps there.
            Outcome::Reply if self.is_walked(question, out) => return Turn::Later(Wait::Beyond),
            Outcome::Reply | Outcome::Chase(_) | Outcome::Unready => {}
        }
        if self.has_rules && scratch.seen.zone.is_some() {
            match self.beyond.rule(question, now, out) {
                Ruling::Pass => {}
                Ruling::Said => return Turn::Reply,
                Ruling::Beyond => return self.elsewhere(question, now, out),
            }
        }
        match outcome {
            Outcome::Chase(chase) => Turn::Later(Wait::Chase(chase)),
            Outcome::Unready => Turn::Later(Wait::Ready),
            Outcome::Reply | Outcome::Silent | Outcome::Beyond => Turn::Reply,
        }
    }

    fn elsewhere(&self, question: &Question<'_>, now: Instant, out: &mut Vec<u8>) -> Turn {
        out.clear();
        if self.beyond.cached(question, now, out) { Turn::Reply } else { Turn::Later(Wait::Beyond) }
    }

    /// Whether a name that is not there is the beginning of a search path that is walked here.
    fn is_walked(&self, question: &Question<'_>, reply: &[u8]) -> bool {
        Fact::rcode_of(reply) == rcode::NXDOMAIN && self.beyond.walks(question)
    }

    /// The answer to a question that has to wait. Before our names are known it is held, but not for longer than `hold`
    /// after it came: most servers know their names in less, and a client asks again after seconds only.
    pub(super) async fn wait(&self, question: Question<'_>, mut wait: Wait, came: Instant, hold: Duration) -> Vec<u8> {
        let mut out = Vec::new();
        if matches!(wait, Wait::Ready) {
            // Whether it is ready then is seen by answering.
            let _ = timeout_at((came + hold).into(), self.book.until_ready()).await;
            let mut scratch = Scratch::new(fastrand::u32(..));
            match self.answer(&question, &mut scratch, Instant::now(), &mut out) {
                Turn::Reply | Turn::Later(Wait::Ready) => return out,
                Turn::Silent => return Vec::new(),
                Turn::Later(next) => wait = next,
            }
        }
        let Wait::Chase(chase) = wait else { return self.beyond.resolve(question).await };
        let found = self.beyond.lookup(chase.target(), chase.qtype, question.ends).await;
        self.book.chased(question.message, question.transport, &chase, &found, &mut out);
        out
    }
}
