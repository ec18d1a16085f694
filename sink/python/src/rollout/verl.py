"""An agent loop manager that feeds the TransferQueue of verl's trainer v1.

    actor_rollout_ref.rollout.agent.agent_loop_manager_class=rollout.verl.Feeder
    +actor_rollout_ref.rollout.custom.rollout={config: rollout.yaml, tasks: tasks.jsonl, out: run1, max_ahead: 2}

For each prompt that the trainer submits (verl 0.9.1, trainer/ppo/v1/trainer_base.py:1496)
the next group of the collector goes into the TransferQueue (0.1.11), under the prompt's
uid: keys {uid}_{sample_index}_{segment_index}, fields and tags as agent_loop_tq.py:180. The
prompt gets global_steps = the oldest version of the group + 1, as step s trains what
version s - 1 sampled (trainer_base.py:1987), and the status failure where a sample failed
or has no reward (agent_loop_tq.py:142): dropping it is left to the replay buffer. Versions
that a row does not know are bounds, see Worker.versions.

The key "rollout" has the collector's place as its tag, put with each group: a checkpoint
of the queue (trainer_base.py:1004) holds it and goes on behind it.
"""

from __future__ import annotations

import queue
from typing import Any

from rollout._handed import Worker
from rollout._types import Group


class Feeder(Worker):
    """What PPOTrainer.fit takes; made of what rollout.collect takes."""

    def __init__(self, config: Any = None, tasks: Any = None, **options: Any) -> None:
        super().__init__(config, tasks, **options)
        self._uids: queue.Queue[str | None] = queue.Queue()

    @classmethod
    def create(cls, config: Any, **_: Any) -> Feeder:
        """Return the feeder that rollout.custom.rollout of verl's configuration describes."""
        from omegaconf import OmegaConf

        given: Any = OmegaConf.to_container(OmegaConf.create(config.actor_rollout_ref.rollout.custom["rollout"]), resolve=True)
        return cls(**given)

    def generate_sequences(self, prompts: Any) -> None:
        """Ask for as many groups as there are prompts, and return at once; the first call starts the collector.

        Raises RuntimeError where no more groups will come, NotImplementedError for validation.
        """
        import transfer_queue as tq

        self.check()
        if "validate" in prompts and prompts["validate"]:
            raise NotImplementedError("no validation: set trainer.val_before_train=False and trainer.test_freq=-1")
        self.note(int(prompts["global_steps"]) - 1)
        for uid in prompts["uid"]:
            self._uids.put(str(uid))
        if self._collector is None:
            self.begin((tq.kv_list("train") or {}).get("train", {}).get("rollout"))

    def close(self) -> None:
        """End the collector."""
        self._stopped.set()
        self._uids.put(None)
        super().close()

    def _run(self) -> None:
        import transfer_queue as tq

        super()._run()
        while not self._stopped.is_set() and (uid := self._uids.get()) is not None:  # generate_sequences tells why
            tq.kv_batch_put(keys=[uid], partition_id="train", tags=[{"status": "failure"}])

    def _hand(self, group: Group, number: int) -> None:
        if (uid := self._uids.get()) is not None:
            try:
                self._put(group, uid)
            except BaseException:
                self._uids.put(uid)  # _run ends the prompt
                raise

    def _put(self, group: Group, uid: str) -> None:
        import torch
        import transfer_queue as tq
        from verl.utils.tensordict_utils import list_of_dict_to_tensordict

        keys, fields, tags = [], [], []
        for row in (row for row in group.rows if row["reward"] is not None):
            ids, at = torch.tensor(row["input_ids"], dtype=torch.int64), row["prompt_length"]
            mask = torch.tensor(row["loss_mask"][at:], dtype=torch.int64)
            score = torch.zeros(len(mask))
            score[-1] = row["reward"]
            oldest, newest = self.versions(row)
            steps = {"min_global_steps": oldest, "max_global_steps": newest}
            keys.append(f"{uid}_{row['sample_index']}_{row['segment_index']}")
            fields.append(
                {
                    "uid": uid, "session_id": row["sample_index"], "global_steps": oldest + 1,
                    "prompts": ids[:at], "responses": ids[at:], "input_ids": ids, "position_ids": torch.arange(len(ids)),
                    "response_mask": mask, "loss_mask": mask, "rollout_log_probs": torch.tensor(row["logprobs"][at:]), "rm_scores": score,
                    "num_turns": len(row["turn_roles"]), "multi_modal_inputs": {}, "extra_fields": {**steps, "reward_extra_info": {}},
                }
            )  # fmt: skip
            lengths = {"prompt_len": at, "response_len": len(mask), "seq_len": len(ids)}
            tags.append({"status": "success", **lengths, "global_steps": oldest + 1, **steps})
        if keys:
            tq.kv_batch_put(keys=keys, partition_id="train", fields=list_of_dict_to_tensordict(fields), tags=tags)
        whole = 0 < len(keys) == len(group.rows) and not group.failed and not group.missing
        oldest = min((tag["min_global_steps"] for tag in tags), default=self._version)
        done = {"status": "finished" if whole else "failure", "global_steps": oldest + 1}
        tq.kv_batch_put(keys=[uid, "rollout"], partition_id="train", tags=[done, self._collector.state_dict()])
