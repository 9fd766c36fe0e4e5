"""`taskspec retrain --watch`: when to retrain (`watch`), and the answers that it compares (`watched_traces`)."""
