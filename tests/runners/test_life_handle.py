"""What a server handle says of its server, and what it may say to the store."""

from runners.flows.life import LifeHandle
from runners.flows.outcome import decide
from runners.ingest import Feed, context_of
from runners.nodes.jobs import JobStatus
from runners.spec import Deployment, Node
from store.masking import mask_text
from store.records import Job, Life, LogEvent


def _handle(state: str, status: JobStatus, fatal: list[LogEvent] | None = None) -> LifeHandle:
    job = Job(job_id="j", run_id="r", node="here", kind="server", folder="/x", rank=0)
    feed = Feed(job, context_of(job), status=status, fatal=fatal or [])
    life = Life(life_id="l", run_id="r", deployment="d", engine="vllm", state=state)
    dep = Deployment(name="d", engine="vllm", nodes=["here"])
    return LifeHandle(life, dep, [Node(name="here", host="local")], [], feeds=[feed])


EXITED = JobStatus(job_id="j", state="exited", exit_code=2)


def test_a_server_that_ends_before_it_was_ready_has_failed_to_start() -> None:
    assert decide(_handle("starting", EXITED).trouble()) == ("START_FAILED", "rank 0 on here exited with code 2")


def test_a_server_that_ends_after_it_was_ready_has_crashed() -> None:
    assert decide(_handle("ready", EXITED).trouble()) == ("ENGINE_CRASH", "rank 0 on here exited with code 2")


def test_an_out_of_memory_line_leads_also_while_the_server_starts() -> None:
    oom = LogEvent(
        run_id="r", job_id="j", node="here", stream="stderr", offset=0, name="oom", severity="fatal", wall_ns=1
    )
    assert decide(_handle("starting", EXITED, [oom]).trouble())[0] == "OOM"


def test_an_external_servers_password_serves_to_ask_it_and_is_nowhere_else() -> None:
    url = "http://bob:hunter2hunter2@198.51.100.7:8000"
    dep = Deployment(name="d", engine="external", url=url)
    life = Life(life_id="l", run_id="r", deployment="d", engine="external", state="ready", url=mask_text(url))
    handle = LifeHandle(life, dep, [Node(name="here", host="local")], [])
    assert handle.url == url
    assert "hunter2" not in repr(handle.life)
