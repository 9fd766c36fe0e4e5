"""Between text and token ids.

tokenizer       text and chat messages to ids, with the target's tokenizer
chat_template   a conversation in the target's chat template
written_tools   tools for models whose template has none
plain_contents  special tokens that a user types stay text in it
detokenizer     ids to text as they come, up to a stop string
vocabulary      the check that draft and target number their tokens alike
prompts         a text or a conversation that the target answers
prompt_forms    the forms in which people write prompts
prompt_files    prompts from a file
"""
