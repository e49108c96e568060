//! The contract test suite that every transport has to pass.
//!
//! A transport's `tests/contract.rs` implements [`Harness`] and then invokes
//! `transport_contract::contract_tests!(MyHarness::new());`, which makes one `#[test]` of each
//! clause of the contract at [`transport::Transport`]. To test several configurations of one
//! transport, use one invocation in each of several modules.
//!
//! The path of a clause through the files: a function of `blocks`, `control`, `cut_through`, `ends`,
//! `failures`, `offload`, `visibility`, `waiting` or `writes` posts through a rig (`rig`), which polls all members in turn
//! and checks the invariants on each completion: every post completes once and with its own token,
//! its memory is free by then, and nothing follows the end of an endpoint.

mod blocks;
mod control;
mod counting;
mod cut_through;
mod ends;
mod failures;
mod harness;
mod offload;
mod patterns;
mod remote;
mod rig;
mod visibility;
mod waiting;
mod writes;

pub use counting::CountingAllocator;
pub use harness::{Harness, Network};
pub use remote::{Remote, RemoteMember, connected_remotes, run_member};

/// The clauses of the contract, one function each; [`crate::contract_tests`] makes tests of them.
pub mod clauses {
    pub use super::{
        blocks::{
            a_block_over_the_limit_is_refused, a_short_block_leaves_the_rest_of_the_memory_alone,
            blocks_match_receives_in_posting_order, blocks_of_read_only_memory_arrive,
            every_length_arrives_exactly, everybody_sends_to_everybody,
            large_blocks_posted_all_at_once, many_small_blocks_through_a_window_of_two,
            memory_is_held_until_it_is_handed_back, one_block_to_several_peers_at_once,
            tokens_and_immediates_come_back,
        },
        control::{
            control_words_arrive_whole_and_in_order, control_words_of_a_wrong_length_are_refused,
            control_words_overtake_waiting_blocks, control_words_wait_for_a_slow_reader,
        },
        cut_through::{
            a_block_is_sent_on_while_it_arrives, a_block_that_does_not_go_on_delays_nothing_else,
            a_block_whose_source_has_died_is_not_completed,
            a_dropped_transport_hands_back_what_it_sends_on, blocks_of_all_lengths_are_sent_on,
            cut_through_sends_are_refused_as_others_are,
        },
        ends::{
            a_close_cancels_what_is_posted, a_close_ends_although_the_peer_does_not_read,
            a_close_in_the_middle_of_blocks, both_sides_may_close_at_once,
            closing_twice_is_harmless, control_words_before_a_close_arrive,
            posts_on_a_gone_endpoint_are_refused,
        },
        failures::{
            a_block_longer_than_the_memory_breaks_the_endpoint,
            a_block_that_nobody_asked_for_breaks_the_endpoint,
            a_dead_member_breaks_its_endpoints_only, a_death_in_the_middle_of_blocks,
            a_dropped_transport_hands_back_its_memory, a_silent_member_is_reported,
        },
        offload::{
            a_cancelled_receive_cancels_its_offloaded_sends, a_close_cancels_what_is_offloaded,
            a_dropped_transport_hands_back_offloaded_memory,
            an_offloaded_send_after_a_receive_that_is_done,
            offloaded_blocks_match_by_their_immediates,
            offloaded_posts_that_make_no_sense_are_refused, offloaded_sends_follow_each_other,
            offloaded_sends_start_with_nobody_polling, several_offloaded_sends_follow_one_receive,
        },
        visibility::{
            unreported_writes_arrive_before_a_reported_one, vouched_bytes_become_visible_in_order,
            vouched_words_become_visible_whole,
        },
        waiting::{
            a_member_that_does_not_poll_delays_nobody, a_poll_without_wait_returns,
            a_wait_ends_by_itself, a_wake_before_the_wait_counts, completions_are_appended,
            the_waker_ends_a_wait, what_was_flushed_needs_no_poll,
        },
        writes::{
            a_close_hands_back_writes, a_large_write_arrives_whole,
            a_write_outside_breaks_the_endpoint, exposed_memory_is_released_at_the_end,
            exposed_memory_is_used_by_turns, keys_name_memory_of_one_endpoint,
            writes_arrive_in_order_where_they_belong, writes_blocks_and_words_interleave,
            writes_wait_for_a_slow_reader,
        },
    };
}

/// Makes one `#[test]` of each clause of the contract. The argument is an expression that makes a
/// new [`Harness`]; each test evaluates it separately.
#[macro_export]
macro_rules! contract_tests {
    ($harness:expr) => {
        $crate::contract_tests! { @each $harness;
            a_block_is_sent_on_while_it_arrives
            a_block_longer_than_the_memory_breaks_the_endpoint
            a_block_over_the_limit_is_refused
            a_block_that_does_not_go_on_delays_nothing_else
            a_block_that_nobody_asked_for_breaks_the_endpoint
            a_block_whose_source_has_died_is_not_completed
            a_cancelled_receive_cancels_its_offloaded_sends
            a_close_cancels_what_is_offloaded
            a_close_cancels_what_is_posted
            a_close_ends_although_the_peer_does_not_read
            a_close_in_the_middle_of_blocks
            a_dead_member_breaks_its_endpoints_only
            a_death_in_the_middle_of_blocks
            a_dropped_transport_hands_back_its_memory
            a_dropped_transport_hands_back_offloaded_memory
            a_dropped_transport_hands_back_what_it_sends_on
            a_member_that_does_not_poll_delays_nobody
            a_poll_without_wait_returns
            a_short_block_leaves_the_rest_of_the_memory_alone
            a_silent_member_is_reported
            a_wait_ends_by_itself
            a_wake_before_the_wait_counts
            an_offloaded_send_after_a_receive_that_is_done
            blocks_match_receives_in_posting_order
            blocks_of_all_lengths_are_sent_on
            blocks_of_read_only_memory_arrive
            both_sides_may_close_at_once
            closing_twice_is_harmless
            completions_are_appended
            control_words_arrive_whole_and_in_order
            control_words_before_a_close_arrive
            control_words_of_a_wrong_length_are_refused
            control_words_overtake_waiting_blocks
            control_words_wait_for_a_slow_reader
            cut_through_sends_are_refused_as_others_are
            every_length_arrives_exactly
            everybody_sends_to_everybody
            large_blocks_posted_all_at_once
            many_small_blocks_through_a_window_of_two
            memory_is_held_until_it_is_handed_back
            offloaded_blocks_match_by_their_immediates
            offloaded_posts_that_make_no_sense_are_refused
            offloaded_sends_follow_each_other
            offloaded_sends_start_with_nobody_polling
            one_block_to_several_peers_at_once
            posts_on_a_gone_endpoint_are_refused
            several_offloaded_sends_follow_one_receive
            the_waker_ends_a_wait
            tokens_and_immediates_come_back
            a_close_hands_back_writes
            a_large_write_arrives_whole
            a_write_outside_breaks_the_endpoint
            exposed_memory_is_released_at_the_end
            exposed_memory_is_used_by_turns
            keys_name_memory_of_one_endpoint
            unreported_writes_arrive_before_a_reported_one
            vouched_bytes_become_visible_in_order
            vouched_words_become_visible_whole
            what_was_flushed_needs_no_poll
            writes_arrive_in_order_where_they_belong
            writes_blocks_and_words_interleave
            writes_wait_for_a_slow_reader
        }
    };
    (@each $harness:expr; $($clause:ident)*) => {
        $(
            #[test]
            fn $clause() {
                let mut harness = $harness;
                let clause = stringify!($clause);
                if let Some(why) = $crate::Harness::skip_reason(&harness, clause) {
                    eprintln!("SKIPPED: {clause}: {why}");
                    return;
                }
                $crate::clauses::$clause(&mut harness);
            }
        )*
    };
}
