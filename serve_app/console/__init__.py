"""The console: a page for browsers, what it reads of the service, and what an operator may do there.

page         the page's files, and who gets them
routes       the endpoints: status, events, actions
lookout      one look at the service a second, for all who look
permission   who may act
actions      what is done, and the log of it
overview     what one look finds, as one object for the page
bundles      the bundles that are published
operator     looks and acts, in an ingress replica
static       the files themselves
"""
