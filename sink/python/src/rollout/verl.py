"""An agent loop manager that feeds the TransferQueue of verl's trainer v1.

    actor_rollout_ref.rollout.agent.agent_loop_manager_class=rollout.verl.Feeder
    +actor_rollout_ref.rollout.custom.rollout={config: rollout.yaml, tasks: tasks.jsonl, out: run1, max_ahead: 2}

For each prompt that the trainer submits (verl 0.9.1, trainer/ppo/v1/trainer_base.py:1496), the
feeder puts the next group from the collector into the TransferQueue (0.1.11) under the prompt's
uid. The keys of rows are {uid}_{sample_index}_{segment_index}. The fields and tags are the same
as in agent_loop_tq.py:180. The prompt's global_steps is 1 + the oldest version in the group,
because step s trains on samples from version s - 1 (trainer_base.py:1987). The prompt's status is
failure if a sample failed or has no reward (agent_loop_tq.py:142). The replay buffer decides
whether to drop such a prompt. If the versions of a row are unknown, the feeder uses a lower and
an upper bound (see Worker.versions).

verl treats a sample with several rows as several sequences. If loss_agg_mode is token-mean or
seq-mean-token-sum, the tokens have the same weight as in a single row. If it is
seq-mean-token-mean, all rows have the same weight. For example, a sample with five rows and a
sample with one row have the weights 0.833 and 0.167. With weigh_samples=True, both samples have
the weight 0.5. Each row then has the field rollout_is_weights. It contains the row's share of the
sampled tokens in its sample. verl multiplies the losses of the row's tokens by this field
(workers/utils/losses.py:87). verl's own rollout correction
(algorithm.rollout_correction.rollout_is) writes the same field, so use only one of the two.

The tag of the key "rollout" is the place of the collector. It is written together with each
group. A checkpoint of the queue (trainer_base.py:1004) contains this tag, so a restored trainer
continues after the place.
"""

from __future__ import annotations

from typing import Any

from rollout._args import flag
from rollout._bridge import OnRequest
from rollout._types import Group
from rollout.train.adapters import to_verl


class Feeder(OnRequest):
    """A feeder for PPOTrainer.fit. It accepts the arguments of rollout.collect, or a finished
    run. Each request is the uid of a prompt.

    weigh_samples: if loss_agg_mode is seq-mean-token-mean, give all samples the same weight,
    regardless of their number of rows.
    """

    def __init__(self, config: Any = None, tasks: Any = None, *, weigh_samples: bool = False, **options: Any) -> None:
        flag("weigh_samples", weigh_samples)
        super().__init__(config, tasks, **options)
        self._weigh = weigh_samples

    @classmethod
    def create(cls, config: Any, **_: Any) -> Feeder:
        """Create a feeder from rollout.custom.rollout in verl's configuration."""
        from omegaconf import OmegaConf

        given: Any = OmegaConf.to_container(OmegaConf.create(config.actor_rollout_ref.rollout.custom["rollout"]), resolve=True)
        return cls(**given)

    def generate_sequences(self, prompts: Any) -> None:
        """Request one group per prompt, without waiting for the groups. The first call starts the
        collector.

        Raises RuntimeError if there are no more groups, and NotImplementedError for validation
        prompts.
        """
        import transfer_queue as tq

        self.check()
        if "validate" in prompts and prompts["validate"]:
            raise NotImplementedError("validation is not supported: set trainer.val_before_train=False and trainer.test_freq=-1")
        self.note(int(prompts["global_steps"]) - 1)
        for uid in prompts["uid"]:
            self._requests.put(str(uid))
        if self._collector is None:
            self.begin((tq.kv_list("train") or {}).get("train", {}).get("rollout"))

    def _answer(self, uid: str, group: Group) -> None:
        import transfer_queue as tq

        made = to_verl([group], uids=[uid], null_reward="drop", versions=self.versions, weigh_samples=self._weigh)
        if made["keys"]:
            tq.kv_batch_put(partition_id="train", **made)
        whole = 0 < len(made["keys"]) == len(group.rows) and not group.failed and not group.missing
        step = min((tag["global_steps"] for tag in made["tags"]), default=self._version + 1)
        done = {"status": "finished" if whole else "failure", "global_steps": step}
        tq.kv_batch_put(keys=[uid, "rollout"], partition_id="train", tags=[done, self._collector.state_dict()])

    def _refuse(self, uid: str) -> None:
        import transfer_queue as tq

        tq.kv_batch_put(keys=[uid], partition_id="train", tags=[{"status": "failure"}])
