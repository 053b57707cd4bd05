"""What a directory of Hugging Face's form needs beside its model, for the benchmarks that train one."""


def save_tokenizer(path, text):
    """A byte-level tokenizer of 8,000 tokens, trained on the file `text`, in the directory `path`."""
    import tokenizers
    import transformers

    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train([str(text)], vocab_size=8000, special_tokens=["<|endoftext|>"])
    transformers.PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, eos_token="<|endoftext|>").save_pretrained(
        path
    )
