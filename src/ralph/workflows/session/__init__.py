"""Sessions: plan, waves of tasks, review, the user's feedback, replanning."""
