"""Sessions: plan, waves of tasks, review, a person's feedback, replanning."""
