-- Telemetry in full: what every vendor's tools tell, threads with their wait for a core, directions of rail trouble,
-- memory of processes on GPUs, and roll-ups that keep long histories quick.

ALTER TABLE gpu_samples ADD COLUMN pci_bus_id VARCHAR;
COMMENT ON COLUMN gpu_samples.pci_bus_id IS 'PCI address as the tool writes it';
ALTER TABLE gpu_samples ADD COLUMN mem_used_pct DOUBLE;
COMMENT ON COLUMN gpu_samples.mem_used_pct IS 'memory in use, of tools that give a share and no bytes';
ALTER TABLE gpu_samples ADD COLUMN pcie_gen BIGINT;
COMMENT ON COLUMN gpu_samples.pcie_gen IS 'PCIe generation of the link now';
ALTER TABLE gpu_samples ADD COLUMN pcie_width BIGINT;
COMMENT ON COLUMN gpu_samples.pcie_width IS 'PCIe lanes of the link now';
ALTER TABLE gpu_samples ADD COLUMN throttled_us_total BIGINT;
COMMENT ON COLUMN gpu_samples.throttled_us_total IS 'time held back for heat, power brake or power cap since the driver was loaded; the largest of the driver''s counters';
ALTER TABLE gpu_samples ADD COLUMN ecc_corrected_total BIGINT;
COMMENT ON COLUMN gpu_samples.ecc_corrected_total IS 'corrected ECC errors since the driver was loaded';
ALTER TABLE gpu_samples ADD COLUMN sm_active_pct DOUBLE;
COMMENT ON COLUMN gpu_samples.sm_active_pct IS 'share of time with a warp on an SM, mean over SMs (DCGM)';
ALTER TABLE gpu_samples ADD COLUMN sm_occupancy_pct DOUBLE;
COMMENT ON COLUMN gpu_samples.sm_occupancy_pct IS 'resident warps of the possible ones (DCGM)';
ALTER TABLE gpu_samples ADD COLUMN tensor_active_pct DOUBLE;
COMMENT ON COLUMN gpu_samples.tensor_active_pct IS 'share of cycles in which the tensor pipe was active (DCGM)';
ALTER TABLE gpu_samples ADD COLUMN dram_active_pct DOUBLE;
COMMENT ON COLUMN gpu_samples.dram_active_pct IS 'share of cycles in which the memory interface was active (DCGM)';
ALTER TABLE gpu_samples ADD COLUMN missing VARCHAR;
COMMENT ON COLUMN gpu_samples.missing IS 'what the tool was asked for and could not give, with its words';

ALTER TABLE thread_samples ADD COLUMN process VARCHAR;
COMMENT ON COLUMN thread_samples.process IS 'title of the process';
ALTER TABLE thread_samples ADD COLUMN role VARCHAR;
COMMENT ON COLUMN thread_samples.role IS 'scheduler, detokenizer, tokenizer, engine core, worker, front end, router or other';
ALTER TABLE thread_samples ADD COLUMN run_ns_total BIGINT;
COMMENT ON COLUMN thread_samples.run_ns_total IS 'time on a core (schedstat)';
ALTER TABLE thread_samples ADD COLUMN wait_ns_total BIGINT;
COMMENT ON COLUMN thread_samples.wait_ns_total IS 'time runnable but waiting for a core: the run queue (schedstat)';

ALTER TABLE numa_samples ADD COLUMN process VARCHAR;
COMMENT ON COLUMN numa_samples.process IS 'title of the process';
ALTER TABLE numa_samples ADD COLUMN cpus VARCHAR;
COMMENT ON COLUMN numa_samples.cpus IS 'CPUs: of the NUMA node, or those that the process may use';
ALTER TABLE numa_samples ADD COLUMN missing VARCHAR;
COMMENT ON COLUMN numa_samples.missing IS 'why pages are not known';

ALTER TABLE host_samples ADD COLUMN blocked BIGINT;
COMMENT ON COLUMN host_samples.blocked IS 'tasks in uninterruptible sleep';
ALTER TABLE host_samples ADD COLUMN faults_total BIGINT;
COMMENT ON COLUMN host_samples.faults_total IS 'page faults since boot';
ALTER TABLE host_samples ADD COLUMN major_faults_total BIGINT;
COMMENT ON COLUMN host_samples.major_faults_total IS 'page faults that had to read a disk';
ALTER TABLE host_samples ADD COLUMN disk_total_bytes BIGINT;
COMMENT ON COLUMN host_samples.disk_total_bytes IS 'size of the file system that holds twinrail''s folder';

ALTER TABLE rail_samples ADD COLUMN netdev VARCHAR;
COMMENT ON COLUMN rail_samples.netdev IS 'the kernel''s name of the same port';
ALTER TABLE rail_samples ADD COLUMN numa BIGINT;
COMMENT ON COLUMN rail_samples.numa IS 'NUMA node of the adapter';
ALTER TABLE rail_samples ADD COLUMN rx_errors_total BIGINT;
COMMENT ON COLUMN rail_samples.rx_errors_total IS 'errors while receiving';
ALTER TABLE rail_samples ADD COLUMN tx_errors_total BIGINT;
COMMENT ON COLUMN rail_samples.tx_errors_total IS 'errors while sending';
ALTER TABLE rail_samples ADD COLUMN rx_drops_total BIGINT;
COMMENT ON COLUMN rail_samples.rx_drops_total IS 'received and dropped: no buffer in the adapter or the host';
ALTER TABLE rail_samples ADD COLUMN tx_drops_total BIGINT;
COMMENT ON COLUMN rail_samples.tx_drops_total IS 'dropped before sending';
ALTER TABLE rail_samples ADD COLUMN tx_wait_total BIGINT;
COMMENT ON COLUMN rail_samples.tx_wait_total IS 'ticks in which there was data and no credit to send it (port_xmit_wait)';
ALTER TABLE rail_samples ADD COLUMN timeouts_total BIGINT;
COMMENT ON COLUMN rail_samples.timeouts_total IS 'acknowledgements that did not come in time: packets were lost';
ALTER TABLE rail_samples ADD COLUMN link_downs_total BIGINT;
COMMENT ON COLUMN rail_samples.link_downs_total IS 'how often the link went down';
ALTER TABLE rail_samples ADD COLUMN cnp_ignored_total BIGINT;
COMMENT ON COLUMN rail_samples.cnp_ignored_total IS 'congestion notices that were not obeyed: congestion control is not set up';
ALTER TABLE rail_samples ADD COLUMN rx_pause_us_total BIGINT;
COMMENT ON COLUMN rail_samples.rx_pause_us_total IS 'time in which the other side told us to wait, as the driver counts it';
ALTER TABLE rail_samples ADD COLUMN tx_pause_us_total BIGINT;
COMMENT ON COLUMN rail_samples.tx_pause_us_total IS 'time in which we told the other side to wait';
ALTER TABLE rail_samples ADD COLUMN pfc VARCHAR;
COMMENT ON COLUMN rail_samples.pfc IS 'configured or not configured: whether the port counts pauses by priority';
ALTER TABLE rail_samples ADD COLUMN busiest_priority BIGINT;
COMMENT ON COLUMN rail_samples.busiest_priority IS 'priority with the most bytes since boot';
ALTER TABLE rail_samples ADD COLUMN missing VARCHAR;
COMMENT ON COLUMN rail_samples.missing IS 'what could not be had and why';

ALTER TABLE engine_samples ADD COLUMN kv_used_tokens DOUBLE;
COMMENT ON COLUMN engine_samples.kv_used_tokens IS 'tokens held in the KV pool';
ALTER TABLE engine_samples ADD COLUMN retracted DOUBLE;
COMMENT ON COLUMN engine_samples.retracted IS 'requests that are retracted now (SGLang)';
ALTER TABLE engine_samples ADD COLUMN computed_tokens_total DOUBLE;
COMMENT ON COLUMN engine_samples.computed_tokens_total IS 'prompt tokens that a prefill computed';
ALTER TABLE engine_samples ADD COLUMN cached_tokens_total DOUBLE;
COMMENT ON COLUMN engine_samples.cached_tokens_total IS 'prompt tokens that came from a cache';
ALTER TABLE engine_samples ADD COLUMN prefill_sum_s DOUBLE;
COMMENT ON COLUMN engine_samples.prefill_sum_s IS 'time of requests in prefill';
ALTER TABLE engine_samples ADD COLUMN prefill_count DOUBLE;
COMMENT ON COLUMN engine_samples.prefill_count IS 'requests in prefill_sum_s';
ALTER TABLE engine_samples ADD COLUMN decode_sum_s DOUBLE;
COMMENT ON COLUMN engine_samples.decode_sum_s IS 'time of requests in decode';
ALTER TABLE engine_samples ADD COLUMN decode_count DOUBLE;
COMMENT ON COLUMN engine_samples.decode_count IS 'requests in decode_sum_s';
ALTER TABLE engine_samples ADD COLUMN inference_sum_s DOUBLE;
COMMENT ON COLUMN engine_samples.inference_sum_s IS 'time of requests in service, queue excluded';
ALTER TABLE engine_samples ADD COLUMN inference_count DOUBLE;
COMMENT ON COLUMN engine_samples.inference_count IS 'requests in inference_sum_s';
ALTER TABLE engine_samples ADD COLUMN step_tokens_sum DOUBLE;
COMMENT ON COLUMN engine_samples.step_tokens_sum IS 'tokens of all engine steps';
ALTER TABLE engine_samples ADD COLUMN step_count DOUBLE;
COMMENT ON COLUMN engine_samples.step_count IS 'engine steps';
ALTER TABLE engine_samples ADD COLUMN aborted_total DOUBLE;
COMMENT ON COLUMN engine_samples.aborted_total IS 'requests that were aborted';
ALTER TABLE engine_samples ADD COLUMN spec_accept_length DOUBLE;
COMMENT ON COLUMN engine_samples.spec_accept_length IS 'accepted tokens a step as the engine''s own gauge states it';
ALTER TABLE engine_samples ADD COLUMN prefix_unit VARCHAR;
COMMENT ON COLUMN engine_samples.prefix_unit IS 'what the prefix counters count: tokens or blocks';
ALTER TABLE engine_samples ADD COLUMN missing VARCHAR;
COMMENT ON COLUMN engine_samples.missing IS 'columns that this engine has no metric for';

CREATE TABLE gpu_processes (
    run_id VARCHAR, node VARCHAR, wall_ns BIGINT, mono_ns BIGINT, source VARCHAR, pid BIGINT, gpu_uuid VARCHAR,
    name VARCHAR, mem_used_bytes BIGINT, ours BOOLEAN
);
COMMENT ON TABLE gpu_processes IS 'One process with memory on one GPU at one moment.';
COMMENT ON COLUMN gpu_processes.run_id IS 'run that sampled it';
COMMENT ON COLUMN gpu_processes.node IS 'node of the GPU';
COMMENT ON COLUMN gpu_processes.wall_ns IS 'the node''s wall clock';
COMMENT ON COLUMN gpu_processes.mono_ns IS 'the node''s monotonic clock';
COMMENT ON COLUMN gpu_processes.source IS 'tool that told it';
COMMENT ON COLUMN gpu_processes.pid IS 'process as the node numbers it';
COMMENT ON COLUMN gpu_processes.gpu_uuid IS 'the GPU';
COMMENT ON COLUMN gpu_processes.name IS 'program, cut';
COMMENT ON COLUMN gpu_processes.mem_used_bytes IS 'memory that it holds there';
COMMENT ON COLUMN gpu_processes.ours IS 'whether it belongs to a server of ours; NULL: no server of ours was known then';

CREATE TABLE gpu_rollups (
    run_id VARCHAR, node VARCHAR, gpu BIGINT, step_s BIGINT, wall_ns BIGINT, n BIGINT, util_avg DOUBLE, util_min DOUBLE,
    util_max DOUBLE, mem_used_bytes BIGINT, power_avg DOUBLE, temp_max DOUBLE, sm_mhz_avg DOUBLE, sm_mhz_min DOUBLE,
    pcie_rx_bps DOUBLE, pcie_tx_bps DOUBLE, tensor_pct DOUBLE, dram_pct DOUBLE, throttled BIGINT
);
COMMENT ON TABLE gpu_rollups IS 'One GPU over one step of 10 or 60 s: what long histories read instead of samples.';
COMMENT ON COLUMN gpu_rollups.run_id IS 'run';
COMMENT ON COLUMN gpu_rollups.node IS 'node';
COMMENT ON COLUMN gpu_rollups.gpu IS 'index on the node';
COMMENT ON COLUMN gpu_rollups.step_s IS '10 or 60';
COMMENT ON COLUMN gpu_rollups.wall_ns IS 'start of the step on the node''s wall clock';
COMMENT ON COLUMN gpu_rollups.n IS 'samples in the step';
COMMENT ON COLUMN gpu_rollups.util_avg IS 'mean utilisation, %';
COMMENT ON COLUMN gpu_rollups.util_min IS 'least utilisation, %';
COMMENT ON COLUMN gpu_rollups.util_max IS 'largest utilisation, %';
COMMENT ON COLUMN gpu_rollups.mem_used_bytes IS 'most memory in use';
COMMENT ON COLUMN gpu_rollups.power_avg IS 'mean power, W';
COMMENT ON COLUMN gpu_rollups.temp_max IS 'highest temperature, C';
COMMENT ON COLUMN gpu_rollups.sm_mhz_avg IS 'mean SM clock';
COMMENT ON COLUMN gpu_rollups.sm_mhz_min IS 'lowest SM clock';
COMMENT ON COLUMN gpu_rollups.pcie_rx_bps IS 'mean bytes a second into the GPU';
COMMENT ON COLUMN gpu_rollups.pcie_tx_bps IS 'mean bytes a second out of the GPU';
COMMENT ON COLUMN gpu_rollups.tensor_pct IS 'mean tensor activity';
COMMENT ON COLUMN gpu_rollups.dram_pct IS 'mean memory activity';
COMMENT ON COLUMN gpu_rollups.throttled IS 'samples with a throttle reason';

CREATE TABLE rail_rollups (
    run_id VARCHAR, node VARCHAR, device VARCHAR, port BIGINT, door VARCHAR, step_s BIGINT, wall_ns BIGINT, n BIGINT,
    line_gbs DOUBLE, tx_gbs DOUBLE, rx_gbs DOUBLE, tx_gbs_max DOUBLE, rx_gbs_max DOUBLE, errors BIGINT, drops BIGINT,
    retransmits BIGINT, pauses BIGINT, resets BIGINT
);
COMMENT ON TABLE rail_rollups IS 'One port over one step of 10 or 60 s: rates and what its counters gained.';
COMMENT ON COLUMN rail_rollups.run_id IS 'run';
COMMENT ON COLUMN rail_rollups.node IS 'node';
COMMENT ON COLUMN rail_rollups.device IS 'RDMA device or netdev';
COMMENT ON COLUMN rail_rollups.port IS 'port of the device';
COMMENT ON COLUMN rail_rollups.door IS 'rdma or netdev';
COMMENT ON COLUMN rail_rollups.step_s IS '10 or 60';
COMMENT ON COLUMN rail_rollups.wall_ns IS 'start of the step on the node''s wall clock';
COMMENT ON COLUMN rail_rollups.n IS 'intervals between samples in the step';
COMMENT ON COLUMN rail_rollups.line_gbs IS 'line rate, GB/s';
COMMENT ON COLUMN rail_rollups.tx_gbs IS 'mean GB/s sent';
COMMENT ON COLUMN rail_rollups.rx_gbs IS 'mean GB/s received';
COMMENT ON COLUMN rail_rollups.tx_gbs_max IS 'fastest second sent';
COMMENT ON COLUMN rail_rollups.rx_gbs_max IS 'fastest second received';
COMMENT ON COLUMN rail_rollups.errors IS 'errors in the step';
COMMENT ON COLUMN rail_rollups.drops IS 'drops in the step';
COMMENT ON COLUMN rail_rollups.retransmits IS 'retransmissions in the step';
COMMENT ON COLUMN rail_rollups.pauses IS 'pause frames in the step, both directions';
COMMENT ON COLUMN rail_rollups.resets IS 'counters that went backwards';
