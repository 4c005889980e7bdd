from sqhn.cli import app

app()
