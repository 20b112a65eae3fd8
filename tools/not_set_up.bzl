"""What stands in for a repository that tools/bazel_setup.sh makes."""

def _not_set_up(repository_ctx):
    fail("@%s is not there yet. Run this once: bash tools/bazel_setup.sh" %
         repository_ctx.name)

not_set_up = repository_rule(implementation = _not_set_up)
