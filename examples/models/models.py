"""A model per worker, a GPU per job: each worker loads its model once, and nobody else has its GPU meanwhile.

    python examples/models/models.py

A question that breaks the driver or eats the memory costs one answer; a new worker takes that GPU and loads again.
"""

from pathlib import Path

from ptss_mp import Executor, current

HERE = Path(__file__).parent


def load(path):
    from mymodel import Model  # imported in the worker, after its GPU is chosen

    current().state["model"] = Model(path)


def answer(question):
    return current().state["model"].run(question.strip())


if __name__ == "__main__":
    with Executor(
        max_workers=2, mp_context="spawn", initializer=load, initargs=(HERE / "model.json",),
        resources={"gpu": ["0", "1"]},
    ) as ex:  # fmt: skip
        gpu = ex.options(
            resources={"gpu": 1}, env={"CUDA_VISIBLE_DEVICES": "{gpu}"}, memory="512MiB", timeout="2m"
        )
        with open(HERE / "questions.txt") as lines:
            for question, out in gpu.map_outcomes(answer, lines, ordered=True):
                print(question.strip(), "->", out.result() if out.ok else out.error)
