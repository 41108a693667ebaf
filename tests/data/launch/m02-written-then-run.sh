cat <<'EOF' > /tmp/start_$$.sh
#!/bin/bash
export SGLANG_X=1
exec python3 -m sglang.launch_server --model-path /models/DS --tp 16 --nnodes 2 --node-rank $1 --dist-init-addr 192.0.2.1:5000 --trust-remote-code
EOF
chmod +x /tmp/start_$$.sh
/tmp/start_$$.sh 1
