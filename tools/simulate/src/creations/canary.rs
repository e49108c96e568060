//! Names of planted bugs between a context's creations and its network.

use clap::ValueEnum;
use rdmc::creation::messages::Message;

use super::node::choice;
use crate::dice::Dice;

/// Names of planted bugs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum CreationCanary {
    /// Answers are sometimes not sent.
    LosesAnswers,
    /// An answer names another channel.
    AnswersAnother,
    /// Others are told something else than the root has chosen.
    TellsAnother,
    /// The end of a connection is not reported.
    MissesEnds,
    /// Nothing happens at its time.
    MissesTimeouts,
    /// A channel is never given back.
    KeepsChannels,
}

impl CreationCanary {
    /// Changes a message that is to be sent. Returns whether it is sent.
    pub(super) fn passes(self, message: &mut Message, dice: &mut Dice) -> bool {
        match (self, message) {
            (Self::LosesAnswers, Message::Accepts { .. } | Message::Chose { .. }) => {
                !dice.percent(30)
            }
            (
                Self::AnswersAnother,
                Message::Accepts { channel } | Message::Chose { channel, .. },
            ) => {
                *channel += 2;
                true
            }
            (Self::TellsAnother, Message::Chose { choice: told, .. }) => {
                *told = choice(*told == choice(false));
                true
            }
            _ => true,
        }
    }
}
