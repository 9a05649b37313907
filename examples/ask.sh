#!/bin/sh
# Asks people in Slack with only curl, and waits. Exits with 0 for Yes, 1 for No, 2 if no one answered:
#
#     sh ask.sh && ./deploy.sh
#
# Until a week after the question expires, the same key gets the same question and the same answer. So you can repeat any request,
# but every deployment needs its own key.
#
# Set CLARIFY_URL to the bot's address, and CLARIFY_TOKEN to the token of your [[producers]] table, if it has one.
set -eu
url=${CLARIFY_URL:-http://127.0.0.1:8787}
question='{"question": "Deploy 4.2 to production?", "kind": "yes_no", "timeout": 900, "key": "deploy-4.2"}'

call() {
  curl --silent --show-error --fail --retry 5 --retry-connrefused --noproxy 127.0.0.1 \
    ${CLARIFY_TOKEN:+--header "Authorization: Bearer $CLARIFY_TOKEN"} "$@"
}

state=$(call --header 'Content-Type: application/json' --data "$question" "$url/questions?wait=55")
id=$(printf '%s' "$state" | sed 's/.*"id": *"\(CLR-[0-9-]*\)".*/\1/')
while printf '%s' "$state" | grep -q '"status": *"waiting"'; do
  state=$(call "$url/questions/$id?wait=55")
done

echo "$state"
case $(printf '%s' "$state" | sed -n 's/.*"answer": *\([a-z]*\).*/\1/p') in
  true) exit 0 ;;
  false) exit 1 ;;
  *) exit 2 ;;
esac
