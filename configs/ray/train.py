"""Collects run.yaml with tasks.jsonl on a Ray cluster, and trains on the groups.

usage: python train.py STORE WORKERS
"""

import sys

import ray
import rollout.ray

store, workers = sys.argv[1:]
ray.init()  # the cluster of this node
with rollout.ray.collect("run.yaml", "tasks.jsonl", out=store, workers=int(workers), spool="/tmp/spool") as groups:
    for reference in groups:
        group = reference.get()
        print(group.id, len(group.rows))  # train on it
