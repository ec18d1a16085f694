"""GRPO in plain PyTorch, on groups from a collector that keeps running."""

import os

import rollout
import torch
from rollout import advantages, collate


def grpo(model, logprobs_of, push, collector, checkpoint, *, steps, groups=4, max_lag=4, rate=0.01):
    """Train up to the given number of steps, including the steps in the checkpoint. After each step, yield
    (step, mean reward, number of groups that were dropped because they were too old).

    logprobs_of(ids) returns the log-probability of each id, given the ids before it, shape [b, T].
    push(version) sends the weights of the model to the engines, and returns when the engines have them.
    """
    optimizer = torch.optim.Adam(model.parameters(), rate)
    layout = collate.padded(pad_id=0, null_reward="drop")  # batch["dropped"] is the number of samples without a reward
    step = 0

    def save():
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "collector": collector.state_dict()}
        torch.save(state, checkpoint + ".tmp")
        os.replace(checkpoint + ".tmp", checkpoint)

    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
        collector.load_state_dict(state["collector"])  # continue with the first group after the checkpoint
    else:
        save()
    if step >= steps:
        return  # the checkpoint already has all steps
    push(step)
    collector.set_version(step)

    fresh, old = [], 0
    for group in collector:  # requesting a group acknowledges the previous group
        oldest = [row["policy_version_min"] for row in group.rows]
        if any(version is not None and step - version > max_lag for version in oldest):
            old += 1  # the collector returns old groups too: the trainer decides whether to skip them
            continue
        fresh.append(group)
        if len(fresh) < groups:
            continue
        batch = layout(fresh)
        advantage = advantages.grpo(batch["reward"], batch["group"], batch["sample"], preset="trl")
        weight = rollout.loss_weights(batch["tokens"], batch["sample"], mode="token-mean")
        optimizer.zero_grad()
        for micro in collate.micro_batches(batch):
            a = advantage[micro["row_ids"]]
            w = weight[micro["row_ids"]] * micro["loss_mask"]  # 0 for tokens that are not trained on
            ratio = (logprobs_of(micro["input_ids"]) - micro["logprobs"]).exp()  # relative to the policy that sampled the tokens
            loss = -(w * torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a)).sum()
            loss.backward()
        optimizer.step()
        step += 1
        push(step)
        collector.set_version(step)  # calls in progress are not assigned this version
        save()
        yield step, float(batch["reward"].mean()), old
        if step >= steps:
            return
        fresh, old = [], 0


if __name__ == "__main__":
    table = torch.nn.Embedding(151_936, 1)  # replaces a model: one number per id, whatever precedes the id

    def logprobs_of(ids):
        return torch.nn.functional.logsigmoid(table(ids))[..., 0]

    tasks = ({"prompt": f"Add {n} and {n + 1}.", "answer": str(2 * n + 1)} for n in range(1_000_000))
    server = {"server": "http://127.0.0.1:8283", "model": "sglang//models/qwen3", "samples": 8, "flags": ["--reward=number"]}
    with rollout.collect(tasks=tasks, out="run-grpo", max_ahead=2, **server) as collector:
        for step, reward, old in grpo(table, logprobs_of, lambda version: None, collector, "grpo.pt", steps=3):
            print(f"step {step}: reward {reward:.2f}, {old} groups were too old")
