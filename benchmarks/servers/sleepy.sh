# A server that sleeps before it serves: `sh sleepy.sh SECONDS`. A shell costs next to nothing to start.
sleep "$1"
while IFS= read -r line; do
    case $line in
    *'"method":"notifications/'*) continue ;;
    *'"method":"initialize"'*)
        outcome='"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sleepy","version":"1"}}'
        ;;
    *'"method":"tools/list"'*) outcome='"result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}' ;;
    *) outcome='"error":{"code":-32601,"message":"Method not found"}' ;;
    esac
    id=${line#*\"id\":}
    printf '{"jsonrpc":"2.0","id":%s,%s}\n' "${id%%[,\}]*}" "$outcome"
done
