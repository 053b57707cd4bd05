"""How rows of results are written in tables, and tables in pages."""

import sys

MODELS = {
    "gpt": "GPT, 12 x 512, batch 8 x 256",
    "bert": "BERT-base, batch 8 x 128",
    "resnet": "ResNet-50, 128 x 128, batch 16",
    "unet": "U-Net, 128 x 128, batch 16",
    "lstm": "LSTM, 2 x 512, batch 64 x 96",
    "mlp": "MLP, 40 x 1024, batch 2048",
    "deep": "100 residual blocks of 256, batch 1024",
    "vit": "ViT-B/16, 224 x 224, batch 8",
    "bert-lengths": "BERT-base, batch 8, 24 to 160 tokens",
    "mixture": "Mixture of 8 experts, 6 x 512, batch 8 x 128",
    "mlp/": "MLP, batch 2048 x 1024,",
    "cifar-resnet/": "CIFAR ResNet, 32 x 32,",
    "lora": "LoRA of rank 8 on GPT-2 small of transformers and peft, batch 1 x 64",
}


def ratio(row):
    low, high = row["wall_range"]
    return f"{row['wall_ratio']:.3f} ({low:.2f}-{high:.2f})"


def confident_ratio(row):
    low, high = row["wall_interval"]
    return f"{row['wall_ratio']:.3f} ({low:.3f}-{high:.3f})"


def exact(row):
    return "same" if row["gradients_equal"] else "**differ**"


def peak(row):
    return f"{100 * row['activation_peak_bytes'] / row['plain_activation_peak_bytes']:.1f} %"


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in lines) + "\n"


def put(path, tables, marker="bench"):
    """Between the markers of a page."""
    begin, end = f"<!-- {marker}:begin -->\n", f"<!-- {marker}:end -->"
    page = path.read_text()
    if page.count(begin) != 1 or page.count(end) != 1:
        sys.exit(f"readme_table: {path} needs the lines {begin.strip()} and {end}, once each")
    before, rest = page.split(begin)
    path.write_text(before + begin + tables + end + rest.split(end)[1])
