"""Settings of Celery. On this machine, the broker is a folder; in production, SQS, Redis or RabbitMQ."""

import os

FOLDER = os.environ["EXAMPLE_FOLDER"]

broker_url = "filesystem://"
broker_transport_options = {
    "data_folder_in": f"{FOLDER}/queue",
    "data_folder_out": f"{FOLDER}/queue",
    "control_folder": f"{FOLDER}/control",
}
result_backend = f"file://{FOLDER}/results"
# So that check.py sees with which arguments a task ended.
result_extended = True
