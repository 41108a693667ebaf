-- manifest_said(of_life): the lines of a server's log that speak of what it chose: backends, kernels, NCCL, caches; long dumps of arguments apart
SELECT j.node, j.rank AS node_rank, l.text
FROM log_lines l JOIN jobs j USING (job_id)
WHERE j.life_id = of_life AND j.kind = 'server' AND length(l.text) < 65536
  AND (regexp_matches(l.text, '(?i)backend|all-?reduce|all2all|gemm|indexer|nccl==|CCL version|kernel|prefix caching|chunked prefill|cuda ?graph|speculative')
       AND length(l.text) < 2000
       OR contains(l.text, 'LLM engine (v'))
  AND NOT contains(l.text, 'NCCL INFO Channel')
QUALIFY row_number() OVER (PARTITION BY l.job_id ORDER BY l."offset") <= 2000
ORDER BY j.rank, l.stream, l."offset"
