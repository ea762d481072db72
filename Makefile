# One command per habit; each sets up what it needs (a virtual environment with pinned dependencies) by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TEST_PROGRAMS = $(filter-out %/conftest.py,$(wildcard tests/*/*.py bench/*.py docs/*.py)) examples/demo/demo.py
AGENT_WORKERS ?= 4
MUTATED := workflows/session verify engine
MUTANT_TESTS := tests/workflows tests/verify tests/guards tests/engine tests/workspace tests/cli

.PHONY: demo demo-cluster test-cluster cluster test-web pictures browser session prompts test test-slow test-sandbox sandbox chaos coverage mutants mutants-sample test-agents check fix bench bench-verdicts docs clean

demo: $(READY)
	@$(BIN)/python examples/demo/demo.py

session: $(READY)
	@$(BIN)/python examples/session/run.py $(SESSION_ARGS)

test: $(READY)
	$(BIN)/python -m pytest -n auto --dist loadgroup -m "not slow and not cluster" --ignore tests/sandbox --ignore tests/web/test_browser.py \
	  $(PYTEST_ARGS)

test-slow: $(READY)
	$(BIN)/python -m pytest -n auto --dist loadgroup -m slow $(PYTEST_ARGS)

# Turns on a real Ray cluster of this machine, one test at a time. Installs the extra.
test-cluster: cluster
	$(BIN)/python -m pytest -m cluster tests/workspace $(PYTEST_ARGS)

# Two nodes on this machine, a session with six tasks on them, and where each task ran.
demo-cluster: cluster
	@$(BIN)/python examples/cluster/demo.py

cluster: $(READY)
	@PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install -q -e '.[ray]'

# The promises of the sandbox. Without bubblewrap, these tests are skipped and say so.
test-sandbox: sandbox $(READY)
	$(BIN)/python -m pytest -n auto --dist loadgroup -rs $(PYTEST_ARGS) tests/sandbox

# Installs bubblewrap if it is missing. Without the rights to do so, it only prints the command.
sandbox:
	@command -v bwrap > /dev/null || { command -v apt-get > /dev/null && [ "$$(id -u)" = 0 ] \
	  && { apt-get install -qq -y bubblewrap > /dev/null 2>&1 \
	       || { apt-get update -qq && apt-get install -qq -y bubblewrap; }; } > /dev/null 2>&1; } \
	  || echo "bubblewrap is missing, so the tests of the sandbox are skipped: sudo apt-get install bubblewrap"

# Kills at every git command, where `make test-slow` takes a sample of them.
chaos: $(READY)
	RALPH_CHAOS=1 $(BIN)/python -m pytest -n auto --dist loadgroup -m slow -k kill $(PYTEST_ARGS) tests/git

coverage: $(READY)
	$(BIN)/python -m pytest -n auto --dist loadgroup --cov --cov-report=term:skip-covered -m "not cluster" $(PYTEST_ARGS)

mutants: $(READY)
	$(BIN)/python bench/mutants.py --count 60 --tests $(MUTANT_TESTS) $(MUTANT_ARGS) -- $(MUTATED)

# Another small sample for every commit, in one package, because the tests of all packages take too long to record.
# It fails only if so few are noticed that chance does not explain it: four of twelve, or one of six. Three cannot fail.
mutants-sample: $(READY)
	$(BIN)/python bench/mutants.py --count 12 --at-least 80 --chance 0.002 --one-package --minutes 5 \
	  --seed "$$(git rev-parse HEAD)" $(MUTANT_ARGS) -- $(MUTATED)

# The agents wait more than they compute: four processes suit two cores. Their results become one proof of each agent.
test-agents: $(READY)
	RALPH_REAL_AGENTS=1 $(BIN)/python -m pytest tests/real_agents -m real_agents -p no:cacheprovider -n $(AGENT_WORKERS) \
		--dist loadgroup $(PYTEST_ARGS)

# The page in a real browser. Without chromium, these tests are skipped and say so.
test-web: browser
	$(BIN)/python -m pytest -rs tests/web/test_browser.py $(PYTEST_ARGS) || [ $$? = 5 ] # 5: all were skipped

# The pictures of the README. `PICTURE_ARGS="--all DIR"` takes every screen instead, light, dark and on a phone.
pictures: browser
	$(BIN)/python tests/web/pictures.py $(PICTURE_ARGS)

# Installs chromium if it is missing. Without the rights to do so, it only prints the command.
browser: $(READY)
	@command -v chromium > /dev/null || { command -v apt-get > /dev/null && [ "$$(id -u)" = 0 ] \
	  && { apt-get install -qq -y --no-install-recommends chromium > /dev/null 2>&1 \
	       || { apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium; }; } > /dev/null 2>&1; } \
	  || echo "chromium is missing, so the tests of the page are skipped: sudo apt-get install chromium"
	@PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install -q playwright axe-playwright-python

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@MYPYPATH=src:tests:bench:$(subst $(eval ) ,:,$(wildcard tests/*/)) \
	  $(BIN)/mypy --config-file tests/mypy.ini --cache-dir .mypy_cache/tests $(TEST_PROGRAMS)
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check
	$(BIN)/python docs/retired_words.py

fix: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

prompts: $(READY)
	RECORD=1 $(BIN)/python -m pytest -q -p no:cacheprovider tests/prompts/test_golden.py
	git diff --stat -- tests/prompts

bench: $(READY)
	$(BIN)/python bench/run.py $(BENCH_ARGS)

# Honest and gaming changes in small projects: what Ralph catches, misses and wrongly holds up.
bench-verdicts: $(READY)
	$(BIN)/python bench/verdicts.py $(VERDICT_ARGS)

docs: $(READY)
	$(BIN)/python docs/generate.py

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Ralph needs Python 3.11 or later; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	@echo "Setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install -q -e '.[acp,inline-tests,notify,otel,web]' \
	  hypothesis import-linter mypy pytest pytest-cov pytest-xdist ruff
	@touch $@

clean:
	rm -rf $(VENV) dist build .mypy_cache .pytest_cache .ruff_cache .mutants-cache .coverage*
