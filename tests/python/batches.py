"""A text, and the batches that `remat train` takes of one, made by another program."""

import torch

WORDS = "in the beginning god created heaven and earth was without form void darkness upon face of deep".split()
TEXT = " ".join(WORDS[i * i % 97 % len(WORDS)] for i in range(5000))


def mix(x):
    """SplitMix64, as src/util/mix.h says it is."""
    mask = 2**64 - 1
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & mask
    return x ^ x >> 31


def window(ids, size, step, row, seed):
    """Those `size` tokens of the text that a row of a step's batch is made of."""
    place = mix(mix(mix(seed) ^ step) ^ row) % (len(ids) - size + 1)
    return list(ids[place:place + size])


def next_token_batch(ids, seq, step, rows, seed):
    tokens = torch.tensor([window(ids, seq + 1, step, row, seed) for row in range(rows)])
    return tokens[:, :-1], tokens[:, 1:]


def masked_batch(ids, seq, step, rows, seed, tokenizer):
    """Windows between special tokens, and what is hidden of them."""
    size = seq - 2
    inputs, targets = [], []
    for row in range(rows):
        tokens, target = window(ids, size, step, row, seed), [-100] * size
        state = mix(mix(mix(seed ^ (2**64 - 1)) ^ step) ^ row)

        def below(end):
            nonlocal state
            number, state = mix(state), (state + 0x9E3779B97F4A7C15) % 2**64
            return number % end

        places = list(range(size))
        count = round(0.15 * size)
        for i in range(count):
            j = i + below(size - i)
            places[i], places[j] = places[j], places[i]
        for i in places[:count]:
            target[i] = tokens[i]
            tenth = below(10)
            if tenth < 8:
                tokens[i] = tokenizer.mask_token_id
            elif tenth == 8:
                tokens[i] = below(len(tokenizer))
        inputs.append([tokenizer.cls_token_id, *tokens, tokenizer.sep_token_id])
        targets.append([-100, *target, -100])
    return torch.tensor(inputs), torch.tensor(targets)
