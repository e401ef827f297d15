"""The values of jobs and schedules that the commands about them fill in and show."""

from skillyard.catalog.cron import preview
from skillyard.jobs.engine import TimetableEntry
from skillyard.jobs.jobs import QUEUE, AgentTask, Job, JobFilter, parse_since, refuse_loops
from skillyard.jobs.schedule import PREFIX, Misfire, Overlap, Schedule, checked, local_zone, policies
from skillyard.jobs.service import make_service
