-- startup_ranks(of_life): every rank and stage of a start: seconds since its process to begin and end, beside what is typical
SELECT m.node, m.node_rank, m.rank, m.stage, m.ordinal, m.begin_s, m.end_s, t.end_s AS typical_s, t.ranks AS typical_ranks
FROM startup_marks([of_life]) m
LEFT JOIN startup_typical((SELECT any_value(deployment) FROM lives WHERE life_id = of_life), of_life) t
  ON t.node_rank = m.node_rank AND t.stage = m.stage
ORDER BY m.ordinal, m.node_rank, m.rank NULLS FIRST
