-- The first schema: one table for each record in store/records.py (a test holds the two together).
-- No keys and no indexes: replay of them has been a source of damage, and every table is scanned by column anyway.

CREATE TABLE schema_version (version BIGINT NOT NULL, applied_wall_ns BIGINT NOT NULL);
COMMENT ON TABLE schema_version IS 'Migrations applied to this store; the largest version is the current one.';

CREATE TABLE runs (
    run_id VARCHAR, kind VARCHAR, deployment VARCHAR, plan VARCHAR, state VARCHAR, outcome VARCHAR,
    detail VARCHAR, simulated BOOLEAN, created_wall_ns BIGINT, ended_wall_ns BIGINT, who VARCHAR, why VARCHAR,
    results_dir VARCHAR, spec VARCHAR, clock_node VARCHAR
);
COMMENT ON TABLE runs IS 'One execution of a plan, search, profile, check or watch. `state`: planned | running | collecting | done.';

CREATE TABLE lives (
    life_id VARCHAR, run_id VARCHAR, deployment VARCHAR, state VARCHAR, external BOOLEAN, simulated BOOLEAN,
    url VARCHAR, engine VARCHAR, version VARCHAR, fingerprint VARCHAR, started_wall_ns BIGINT,
    ready_wall_ns BIGINT, ended_wall_ns BIGINT, outcome VARCHAR, detail VARCHAR
);
COMMENT ON TABLE lives IS 'One start-to-stop of a deployment. `state`: starting | ready | stopping | gone.';

CREATE TABLE attempts (
    attempt_id VARCHAR, run_id VARCHAR, ordinal BIGINT, case_name VARCHAR, isl BIGINT, osl BIGINT,
    concurrency BIGINT, request_rate DOUBLE, repeat BIGINT, client VARCHAR, life_id VARCHAR, job_id VARCHAR,
    node VARCHAR, state VARCHAR, outcome VARCHAR, detail VARCHAR, seed BIGINT, started_wall_ns BIGINT,
    ended_wall_ns BIGINT, flags VARCHAR[], case_spec VARCHAR
);
COMMENT ON TABLE attempts IS 'One repeat of one case in a server life. `state`: planned | running | done | void (cut by us, to be repeated).';

CREATE TABLE phases (
    attempt_id VARCHAR, run_id VARCHAR, name VARCHAR, node VARCHAR, start_wall_ns BIGINT, start_mono_ns BIGINT,
    end_wall_ns BIGINT, end_mono_ns BIGINT
);
COMMENT ON TABLE phases IS 'A phase of an attempt (launch, ready, warmup, ramp, steady, drain, collect), on the clock of `node`.';

CREATE TABLE requests (
    run_id VARCHAR, attempt_id VARCHAR, request_id BIGINT, kind VARCHAR, phase VARCHAR, measured BOOLEAN,
    status VARCHAR, error VARCHAR, error_text VARCHAR, http_status BIGINT, isl BIGINT, osl BIGINT,
    scheduled_ns BIGINT, sent_ns BIGINT, sent_wall_ns BIGINT, first_ns BIGINT, last_ns BIGINT, end_ns BIGINT,
    prompt_tokens BIGINT, output_tokens BIGINT, cached_tokens BIGINT, reasoning_tokens BIGINT,
    finish_reason VARCHAR, tokens_per_chunk VARCHAR, chunk_ns BIGINT[], chunk_tokens BIGINT[]
);
COMMENT ON TABLE requests IS 'One generation as the load client saw it.';

CREATE TABLE load_ticks (
    run_id VARCHAR, attempt_id VARCHAR, node VARCHAR, wall_ns BIGINT, mono_ns BIGINT, in_flight BIGINT,
    sent BIGINT, done BIGINT, failed BIGINT, input_tokens BIGINT, output_tokens BIGINT, loop_lag_ms DOUBLE,
    cpu_pct DOUBLE, saturated BOOLEAN
);
COMMENT ON TABLE load_ticks IS 'The load client''s own state, once a second.';

CREATE TABLE points (
    run_id VARCHAR, ordinal BIGINT, concurrency BIGINT, request_rate DOUBLE, outcome VARCHAR, detail VARCHAR,
    repeats BIGINT, input_tps DOUBLE, output_tps DOUBLE, spread_pct DOUBLE, within_slo BOOLEAN
);
COMMENT ON TABLE points IS 'One concurrency (or rate) tried in a search.';

CREATE TABLE gates (
    run_id VARCHAR, life_id VARCHAR, node VARCHAR, name VARCHAR, status VARCHAR, detail VARCHAR, fix VARCHAR,
    wall_ns BIGINT, override_why VARCHAR
);
COMMENT ON TABLE gates IS 'One verdict of a preflight check or gate. `status`: pass | warn | fail | unknown | not_applicable.';

CREATE TABLE commands (
    command_id VARCHAR, run_id VARCHAR, attempt_id VARCHAR, life_id VARCHAR, job_id VARCHAR, node VARCHAR,
    purpose VARCHAR, label VARCHAR, text VARCHAR, cwd VARCHAR, env VARCHAR, started_wall_ns BIGINT,
    ended_wall_ns BIGINT, exit_code BIGINT
);
COMMENT ON TABLE commands IS 'A command with its audit text, secrets masked. `label`: executed | reproduce | planned.';

CREATE TABLE jobs (
    job_id VARCHAR, run_id VARCHAR, life_id VARCHAR, attempt_id VARCHAR, node VARCHAR, kind VARCHAR,
    folder VARCHAR, rank BIGINT, pid BIGINT, start_ticks BIGINT, boot_id VARCHAR, state VARCHAR,
    exit_code BIGINT, started_wall_ns BIGINT, ended_wall_ns BIGINT, ttl_s BIGINT, context VARCHAR
);
COMMENT ON TABLE jobs IS 'A detached job on a node. `state`: starting | running | exited | gone (no process and no exit code) | reaped.';

CREATE TABLE offsets (
    job_id VARCHAR, stream VARCHAR, "offset" BIGINT
);
COMMENT ON TABLE offsets IS 'How many bytes of a job''s stream are parsed and committed. Counted from the job''s start, across rolled parts.';

CREATE TABLE batches (
    job_id VARCHAR, stream VARCHAR, "offset" BIGINT, length BIGINT, sha256 VARCHAR, rows BIGINT, skipped BIGINT,
    wall_ns BIGINT
);
COMMENT ON TABLE batches IS 'Proof of one committed batch: these bytes of this stream became rows in the same transaction.';

CREATE TABLE log_lines (
    run_id VARCHAR, job_id VARCHAR, node VARCHAR, rank BIGINT, stream VARCHAR, "offset" BIGINT, wall_ns BIGINT,
    level VARCHAR, text VARCHAR, truncated BOOLEAN
);
COMMENT ON TABLE log_lines IS 'One line of a job''s output. `wall_ns` is the line''s own time when it has one, else the arrival in the owner.';

CREATE TABLE log_events (
    run_id VARCHAR, job_id VARCHAR, node VARCHAR, rank BIGINT, stream VARCHAR, "offset" BIGINT, wall_ns BIGINT,
    name VARCHAR, severity VARCHAR, detail VARCHAR
);
COMMENT ON TABLE log_events IS 'What a line means: a start-up stage, a fatal error, a transport. `name` is from the list of `read --kinds`.';

CREATE TABLE gpu_samples (
    run_id VARCHAR, node VARCHAR, wall_ns BIGINT, mono_ns BIGINT, source VARCHAR, gpu BIGINT, uuid VARCHAR,
    name VARCHAR, util_pct DOUBLE, mem_util_pct DOUBLE, mem_used_bytes BIGINT, mem_total_bytes BIGINT,
    power_w DOUBLE, power_limit_w DOUBLE, temp_c DOUBLE, sm_mhz DOUBLE, mem_mhz DOUBLE, pstate VARCHAR,
    throttle VARCHAR, pcie_rx_bps DOUBLE, pcie_tx_bps DOUBLE, ecc_errors_total BIGINT
);
COMMENT ON TABLE gpu_samples IS 'One GPU at one moment.';

CREATE TABLE cpu_samples (
    run_id VARCHAR, node VARCHAR, wall_ns BIGINT, mono_ns BIGINT, source VARCHAR, cpu BIGINT, user_ticks BIGINT,
    system_ticks BIGINT, idle_ticks BIGINT, iowait_ticks BIGINT, irq_ticks BIGINT, steal_ticks BIGINT
);
COMMENT ON TABLE cpu_samples IS 'Ticks of one core since boot (/proc/stat, USER_HZ); `cpu` NULL is the sum of all.';

CREATE TABLE host_samples (
    run_id VARCHAR, node VARCHAR, wall_ns BIGINT, mono_ns BIGINT, source VARCHAR, load1 DOUBLE, runnable BIGINT,
    threads BIGINT, ctx_switches_total BIGINT, mem_total_bytes BIGINT, mem_available_bytes BIGINT,
    swap_used_bytes BIGINT, disk_free_bytes BIGINT, probe_cpu_ticks BIGINT
);
COMMENT ON TABLE host_samples IS 'The node as a whole: load, memory, switches, disk.';

CREATE TABLE thread_samples (
    run_id VARCHAR, node VARCHAR, wall_ns BIGINT, mono_ns BIGINT, source VARCHAR, pid BIGINT, tid BIGINT,
    name VARCHAR, state VARCHAR, user_ticks BIGINT, system_ticks BIGINT, minor_faults_total BIGINT,
    major_faults_total BIGINT, voluntary_switches_total BIGINT, involuntary_switches_total BIGINT,
    last_cpu BIGINT
);
COMMENT ON TABLE thread_samples IS 'One thread of a process: time, faults, switches.';

CREATE TABLE numa_samples (
    run_id VARCHAR, node VARCHAR, wall_ns BIGINT, mono_ns BIGINT, source VARCHAR, numa BIGINT, pid BIGINT,
    pages_bytes BIGINT, mem_free_bytes BIGINT, hit_total BIGINT, miss_total BIGINT, foreign_total BIGINT
);
COMMENT ON TABLE numa_samples IS 'Memory of one NUMA node, or of one process on it.';

CREATE TABLE rail_samples (
    run_id VARCHAR, node VARCHAR, wall_ns BIGINT, mono_ns BIGINT, source VARCHAR, device VARCHAR, port BIGINT,
    door VARCHAR, state VARCHAR, rate_gbps DOUBLE, rx_bytes BIGINT, tx_bytes BIGINT, rx_packets BIGINT,
    tx_packets BIGINT, errors_total BIGINT, drops_total BIGINT, retransmits_total BIGINT,
    out_of_sequence_total BIGINT, cnp_total BIGINT, ecn_total BIGINT, rx_pause_total BIGINT,
    tx_pause_total BIGINT
);
COMMENT ON TABLE rail_samples IS 'Counters of one port. `door`: rdma (port counters; RoCE is invisible to the kernel) or netdev (/proc/net/dev).';

CREATE TABLE engine_samples (
    run_id VARCHAR, node VARCHAR, wall_ns BIGINT, mono_ns BIGINT, source VARCHAR, life_id VARCHAR,
    engine VARCHAR, dp_rank BIGINT, running DOUBLE, waiting DOUBLE, kv_usage DOUBLE, kv_tokens_total BIGINT,
    preemptions_total DOUBLE, prompt_tokens_total DOUBLE, generation_tokens_total DOUBLE,
    prefix_queries_total DOUBLE, prefix_hits_total DOUBLE, requests_total DOUBLE, ttft_sum_s DOUBLE,
    ttft_count DOUBLE, itl_sum_s DOUBLE, itl_count DOUBLE, e2e_sum_s DOUBLE, e2e_count DOUBLE,
    queue_sum_s DOUBLE, queue_count DOUBLE, spec_drafts_total DOUBLE, spec_draft_tokens_total DOUBLE,
    spec_accepted_tokens_total DOUBLE, gen_throughput DOUBLE
);
COMMENT ON TABLE engine_samples IS 'What an engine says of itself; `source` is metrics or log. Histograms come as sum (seconds) and count.';

CREATE TABLE artifacts (
    run_id VARCHAR, path VARCHAR, kind VARCHAR, node VARCHAR, source VARCHAR, size_bytes BIGINT, sha256 VARCHAR
);
COMMENT ON TABLE artifacts IS 'A file of a run''s results tree.';

CREATE TABLE variables (
    run_id VARCHAR, life_id VARCHAR, name VARCHAR, value VARCHAR, node VARCHAR, rank BIGINT, source VARCHAR,
    wall_ns BIGINT
);
COMMENT ON TABLE variables IS 'One fact of the manifest. `source`: asked | reported | measured.';

CREATE TABLE clock_offsets (
    run_id VARCHAR, node VARCHAR, wall_ns BIGINT, offset_ns BIGINT, error_ns BIGINT, mono_offset_ns BIGINT
);
COMMENT ON TABLE clock_offsets IS 'Node clock minus owner clock: `offset_ns`, certain to within `error_ns` (half the best round trip).';

CREATE TABLE node_states (
    node VARCHAR, state VARCHAR, detail VARCHAR, rtt_ms DOUBLE, boot_id VARCHAR, wall_ns BIGINT
);
COMMENT ON TABLE node_states IS 'How we see a node now. `state`: connecting | up | lost | auth_needed | hostkey | gone.';

CREATE TABLE orders (
    order_id VARCHAR, wall_ns BIGINT, who VARCHAR, kind VARCHAR, params VARCHAR, state VARCHAR, detail VARCHAR,
    run_id VARCHAR
);
COMMENT ON TABLE orders IS 'What an operator asked the owner for. `state`: accepted | refused | running | done | failed.';

CREATE TABLE findings (
    finding_id VARCHAR, run_id VARCHAR, rule VARCHAR, severity VARCHAR, node VARCHAR, title VARCHAR,
    detail VARCHAR, numbers VARCHAR, sources VARCHAR, next_ab VARCHAR, first_wall_ns BIGINT,
    last_wall_ns BIGINT, count BIGINT, state VARCHAR
);
COMMENT ON TABLE findings IS 'An evidence rule that fired, with the numbers and the next A/B it suggests.';

CREATE TABLE notes (
    run_id VARCHAR, wall_ns BIGINT, who VARCHAR, text VARCHAR
);
COMMENT ON TABLE notes IS 'What an operator wrote down.';
