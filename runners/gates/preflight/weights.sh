# The sizes of a model's tensors, by kind: sh -c THIS inside PYTHON FOLDER. Reads config.json and safetensors headers.
exec timeout -k 2 60 "$1" -c '
import json, os, re, struct, sys
folder = sys.argv[1]
sizes, tensors, unread = {}, 0, 0
expert = re.compile(r"[.]experts?[.]|[.]experts_|[.]mlp[.]experts|block_sparse_moe[.]experts")
for name in sorted(os.listdir(folder)):
    if not name.endswith(".safetensors"):
        continue
    try:
        with open(os.path.join(folder, name), "rb") as f:
            (length,) = struct.unpack("<Q", f.read(8))
            if length > 200 << 20:
                raise ValueError("header too long")
            header = json.loads(f.read(length))
    except (OSError, ValueError, struct.error):
        unread += 1
        continue
    for key, t in header.items():
        if key == "__metadata__":
            continue
        a, b = t["data_offsets"]
        kind = "expert" if expert.search(key) else "embed" if re.search(r"embed_tokens|lm_head|wte[.]", key) else "attention" if re.search(r"attn|attention|indexer", key) else "other"
        sizes[kind] = sizes.get(kind, 0) + b - a
        tensors += 1
try:
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
except (OSError, ValueError):
    config = {}
config = {**config, **config.get("text_config", {})} if isinstance(config.get("text_config"), dict) else config
kept = ("model_type", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size", "kv_lora_rank", "qk_rope_head_dim", "n_routed_experts", "num_experts", "num_local_experts", "max_position_embeddings", "torch_dtype", "dtype", "index_head_dim", "quantization_config")
print("weights\t" + json.dumps({"sizes": sizes, "tensors": tensors, "unread": unread, "config": {k: config[k] for k in kept if k in config}}))
' "$2"
