//! Transports that delegate calls to another one.

/// Implements methods of an `impl Transport` block by the same methods of another transport: of the
/// one in a field of `self`, as in `transport::forward!(inner; now, close, waker);`, or of one that
/// the caller's own macro selects, as in `transport::forward!(either!; now, close, waker);`, which
/// calls `either!(self, transport => transport.now())`.
#[macro_export]
macro_rules! forward {
    ($field:ident; $($method:ident),+ $(,)?) => {
        $($crate::forward!(@$method [$field]);)+
    };
    ($macro:ident!; $($method:ident),+ $(,)?) => {
        $($crate::forward!(@$method [$macro!]);)+
    };
    (@call [$field:ident] $self:ident.$method:ident $arguments:tt) => {
        $self.$field.$method $arguments
    };
    (@call [$macro:ident!] $self:ident.$method:ident $arguments:tt) => {
        $macro!($self, transport => transport.$method $arguments)
    };
    (@now $to:tt) => {
        fn now(&self) -> ::core::time::Duration {
            $crate::forward!(@call $to self.now())
        }
    };
    (@block_bytes_max $to:tt) => {
        fn block_bytes_max(&self) -> u64 {
            $crate::forward!(@call $to self.block_bytes_max())
        }
    };
    (@open $to:tt) => {
        fn open(&mut self, link: Self::Link) -> Result<$crate::EndpointId, $crate::PostError> {
            $crate::forward!(@call $to self.open(link))
        }
    };
    (@register $to:tt) => {
        fn register(&mut self, region: &$crate::Region) -> Result<(), $crate::PostError> {
            $crate::forward!(@call $to self.register(region))
        }
    };
    (@post_receive $to:tt) => {
        fn post_receive(
            &mut self,
            endpoint: $crate::EndpointId,
            into: $crate::WriteLease,
            token: $crate::Token,
        ) -> Result<(), $crate::PostError> {
            $crate::forward!(@call $to self.post_receive(endpoint, into, token))
        }
    };
    (@post_send $to:tt) => {
        fn post_send(
            &mut self,
            endpoint: $crate::EndpointId,
            from: $crate::ReadLease,
            immediate: u32,
            token: $crate::Token,
        ) -> Result<(), $crate::PostError> {
            $crate::forward!(@call $to self.post_send(endpoint, from, immediate, token))
        }
    };
    (@write_control $to:tt) => {
        fn write_control(
            &mut self,
            endpoint: $crate::EndpointId,
            word: &[u8],
        ) -> Result<(), $crate::PostError> {
            $crate::forward!(@call $to self.write_control(endpoint, word))
        }
    };
    (@one_sided $to:tt) => {
        fn one_sided(&mut self) -> Option<&mut dyn $crate::OneSidedWrites> {
            $crate::forward!(@call $to self.one_sided())
        }
    };
    (@cut_through $to:tt) => {
        fn cut_through(&mut self) -> Option<&mut dyn $crate::CutThroughSends> {
            $crate::forward!(@call $to self.cut_through())
        }
    };
    (@triggered $to:tt) => {
        fn triggered(&mut self) -> Option<&mut dyn $crate::TriggeredSends> {
            $crate::forward!(@call $to self.triggered())
        }
    };
    (@close $to:tt) => {
        fn close(&mut self, endpoint: $crate::EndpointId) {
            $crate::forward!(@call $to self.close(endpoint))
        }
    };
    (@poll $to:tt) => {
        fn poll(
            &mut self,
            completions: &mut Vec<$crate::Completion>,
            wait: ::core::time::Duration,
        ) {
            $crate::forward!(@call $to self.poll(completions, wait))
        }
    };
    (@flush $to:tt) => {
        fn flush(&mut self) {
            $crate::forward!(@call $to self.flush())
        }
    };
    (@waker $to:tt) => {
        fn waker(&self) -> $crate::Waker {
            $crate::forward!(@call $to self.waker())
        }
    };
    (@finish $to:tt) => {
        fn finish(&mut self) {
            $crate::forward!(@call $to self.finish())
        }
    };
}
