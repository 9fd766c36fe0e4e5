"""`taskspec audit`: recorded answers, read from a file or from traces, as questions to plain decoding.

recorded   answers with what they are called, or why they cannot be audited
bodies     what is read of answers, whole or as the chunks of a stream
lines      requests and answers of any OpenAI-compatible server, a line each
traces     what a service has recorded
offline    what the HTTP protocol needs of a service, without one
work       audits them with the target of a configuration
page       the outcome for people, and as JSON
"""
