"""What only the page needs: its workspace, its images and its training jobs."""
