#!/usr/bin/env bash
# Says clearly which prerequisite is missing. Usage: prerequisites.sh python|java|maven
set -u
missing=0
say() { echo "missing prerequisite: $1" >&2; echo "  $2" >&2; missing=1; }
case "${1:-}" in
  python)
    python=${PYTHON:-python3}
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
      say "Python 3.11 or newer" "install it, or name one: make PYTHON=/path/to/python3.11"
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
      say "Python's venv module" "on Debian: apt-get install python3-venv"
    ;;
  java)
    java -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])' ||
      say "Java 17 or newer (Spark runs on it)" "on Debian: apt-get install openjdk-17-jre-headless"
    ;;
  maven)
    command -v javac >/dev/null ||
      say "a JDK (javac compiles the small Java drivers of the tests)" "on Debian: apt-get install openjdk-17-jdk-headless"
    command -v mvn >/dev/null ||
      say "Maven (fetches Apache Kafka's jars)" "on Debian: apt-get install maven"
    ;;
esac
exit $missing
