"""The strategies of torchft 0.2.0. Each worker is a replica group of its own, with its store and its manager; rank 0
also runs the lighthouse, which all of them ask before each exchange who is there."""

import logging
import os

import torch
import torch.distributed as dist

# It would log every beat of the lighthouse; read when its library is loaded.
os.environ.setdefault("RUST_LOG", "error")

from torchft import Manager, ProcessGroupGloo
from torchft.coordination import LighthouseServer
from torchft.local_sgd import DiLoCo, LocalSGD

from strategies import Context, Strategy

FRAGMENTS = (4, 3, 2, 1)  # of streaming, the first that fits
HEARTBEAT_TIMEOUT_MS = 60_000  # a heartbeat that waits behind a transfer on a slow link is no death
OUTER_RATE, OUTER_MOMENTUM = 0.7, 0.9  # DiLoCo's own, with Nesterov; co2's --strategy diloco has the same


class Torchft(Strategy):
    """What all of them have in common: lighthouse, store, manager. A failed exchange is an error here, where torchft
    would discard the steps and go on: figures of such a run would mean nothing."""

    def __init__(self, context: Context):
        super().__init__(context)
        logging.getLogger("torchft").setLevel(logging.ERROR)  # it warns of a missing NCCL
        self.local_steps = context.local_steps
        self._lighthouse = self._manager = None
        self._wrapper: LocalSGD | DiLoCo | None = None
        try:
            self._connect()
            self._wrapper = self.wrap()
            self._wrapper.__enter__()
        except BaseException:
            self.close()
            raise

    def wrap(self) -> LocalSGD | DiLoCo:
        raise NotImplementedError

    def _connect(self) -> None:
        context = self.context
        address = f"{context.master}:{context.master_port + 1}"
        if context.rank == 0:
            self._lighthouse = LighthouseServer(bind=address, min_replicas=context.size,
                                                heartbeat_timeout_ms=HEARTBEAT_TIMEOUT_MS)
        dist.barrier()  # it is up
        self._store = dist.TCPStore(context.host, 0, is_master=True, wait_for_workers=False, timeout=context.patience)
        self._manager = Manager(
            pg=ProcessGroupGloo(timeout=context.patience),
            load_state_dict=context.model.load_state_dict,
            state_dict=context.model.state_dict,
            min_replica_size=context.size,
            use_async_quorum=False,
            timeout=context.patience,
            quorum_timeout=context.patience,
            connect_timeout=context.patience,
            rank=0,
            world_size=1,
            store_addr=context.host,
            store_port=self._store.port,
            lighthouse_addr=f"http://{address}",
            replica_id=f"worker{context.rank}",
            hostname=context.host,
            init_sync=False,  # all start from the same seed
            max_retries=0,
        )
        # The group is connected here rather than in the first exchange: the clock does not run yet.
        self._manager.start_quorum()
        self._manager.allreduce(torch.zeros(1)).wait()
        if error := self._manager.errored():
            raise RuntimeError(f"torchft's process group does not work: {error}")

    def close(self) -> None:
        if self._wrapper is not None:
            self._wrapper.__exit__(None, None, None)
        if self._manager is not None:
            self._manager.shutdown(wait=False)
        if self._lighthouse is not None:
            self._lighthouse.shutdown()


class TorchftLocalSgd(Torchft):
    def __init__(self, context: Context, steps: int):
        super().__init__(context)
        self.equal_at_end = steps % context.local_steps == 0

    def wrap(self) -> LocalSGD:
        return LocalSGD(self._manager, self.context.model, self.context.optimizer, sync_every=self.context.local_steps)


class TorchftDiloco(Torchft):
    """delay: steps from sending a fragment to using the result. mix: the worker's own share when it is used."""

    def __init__(self, context: Context, steps: int, fragments: int, delay: int, mix: float):
        self._fragments, self._delay, self._mix = fragments, delay, mix
        super().__init__(context)
        self.equal_at_end = fragments == 1 and mix == 0 and steps % context.local_steps == 0

    def describe(self) -> dict:
        return {"fragments": self._fragments, "delay": self._delay, "outer_rate": OUTER_RATE,
                "momentum": OUTER_MOMENTUM, "nesterov": True, "mix": self._mix}

    def wrap(self) -> DiLoCo:
        model = self.context.model
        fragments = model.fragments(self._fragments) if self._fragments > 1 else [model]
        outer = [torch.optim.SGD(f.parameters(), lr=OUTER_RATE, momentum=OUTER_MOMENTUM, nesterov=True)
                 for f in fragments]
        return DiLoCo(self._manager, fragments, self.context.optimizer, outer, sync_every=self.context.local_steps,
                      fragment_sync_delay=self._delay, fragment_update_alpha=self._mix)


def make(name: str, context: Context, steps: int) -> Strategy:
    last = context.local_steps - 1
    if name == "torchft-local-sgd":
        return TorchftLocalSgd(context, steps)
    if name == "torchft-diloco":
        return TorchftDiloco(context, steps, fragments=1, delay=0, mix=0.0)
    if name == "torchft-diloco-overlap":
        # With its default, a mix of 0, an exchange throws away the steps that a worker took during the transfer: all
        # but one of local_steps. Half, as for Streaming DiLoCo, keeps them in part. The price is that the workers'
        # models differ at the end, so that finish() averages them once more.
        return TorchftDiloco(context, steps, fragments=1, delay=last, mix=0.5)
    # torchft wants local_steps to be a multiple of the fragments. The delay is the longest that it allows: a fragment
    # must have arrived before the next one is sent.
    fragments = next(count for count in FRAGMENTS if context.local_steps % count == 0)
    return TorchftDiloco(context, steps, fragments, delay=context.local_steps // fragments - 1, mix=0.5)
